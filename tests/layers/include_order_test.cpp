#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layers/source_tree.h"

// The structure of the project, checked on its include lines: who may use whom, and what a public header may reach.
// A layer that is new needs a row in kMayInclude. Each rule is also shown a small tree that breaks it.

namespace tandem::layers {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Problems = std::vector<std::string>;
using Rule = std::function<void(const SourceTree&, Problems&)>;

constexpr int kMaxLines = 600;
constexpr std::string_view kBuildHeader = "build.h";  // made by configure; below all layers

// Below each layer: nn and optim don't know each other, data stops at tensors, telemetry needs no tensor.
const std::map<std::string, std::set<std::string>> kMayInclude{
    {"core", {}},
    {"kernels", {"core"}},
    {"tensor", {"core", "kernels"}},
    {"autograd", {"core", "kernels", "tensor"}},
    {"nn", {"core", "kernels", "tensor", "autograd"}},
    {"optim", {"core", "kernels", "tensor", "autograd"}},
    {"data", {"core", "kernels", "tensor"}},
    {"telemetry", {"core"}},
    {"graph", {"core", "kernels", "tensor", "autograd"}},
    {"parallel", {"core", "kernels", "tensor", "autograd", "nn", "optim", "data"}},
};

std::string at(const SourceFile& file, const Include& include) { return fmt::format("{}:{}", file.path, include.line); }

// "tensor" for <tandem/tensor/shape.h>, "tandem.h" for <tandem/tandem.h>, empty for what is not ours.
std::string included_layer(const Include& include) {
  constexpr std::string_view kPrefix = "tandem/";
  if (!include.path.starts_with(kPrefix)) return {};
  const std::string rest = include.path.substr(kPrefix.size());
  return rest.substr(0, rest.find('/'));
}

void includes_point_downwards(const SourceTree& tree, Problems& problems) {
  for (const auto& [name, layer] : tree.layers) {
    if (!kMayInclude.contains(name)) {
      problems.push_back(
          fmt::format("{}/CMakeLists.txt: layer '{}' has no place in the order of layers yet; "
                      "give it a row in kMayInclude of this test",
                      name, name));
    }
  }
  for (const SourceFile& file : tree.files) {
    const std::string from = file.layer();
    if (!kMayInclude.contains(from)) continue;
    const std::set<std::string>& allowed = kMayInclude.at(from);
    for (const Include& include : file.includes) {
      const std::string to = included_layer(include);
      if (include.quoted) {
        problems.push_back(
            fmt::format("{}: \"{}\": inside a layer write <tandem/{}/...>, so that it reads the same "
                        "everywhere",
                        at(file, include), include.path, from));
      } else if (!to.empty() && to != from && to != kBuildHeader && !allowed.contains(to)) {
        problems.push_back(fmt::format("{}: <{}>: {} may include only {}; move the code down, or pass in what it needs",
                                       at(file, include), include.path, from,
                                       allowed.empty() ? "itself" : fmt::format("{}", fmt::join(allowed, ", "))));
      }
    }
  }
}

// A standard header has neither a folder nor an extension: <vector>, <cmath>.
bool is_standard(const Include& include) { return include.path.find_first_of("/.") == std::string::npos; }

void public_headers_reach_only_public_and_standard_headers(const SourceTree& tree, Problems& problems) {
  std::set<std::string> internal;
  std::set<std::string> exposed{"tandem.h"};
  for (const auto& [name, layer] : tree.layers) {
    internal.insert(layer.internal_headers.begin(), layer.internal_headers.end());
    exposed.insert(layer.public_headers.begin(), layer.public_headers.end());
  }
  for (const SourceFile& file : tree.files) {
    if (!exposed.contains(file.path)) continue;
    for (const Include& include : file.includes) {
      if (is_standard(include) || included_layer(include) == kBuildHeader) continue;
      if (included_layer(include).empty()) {
        problems.push_back(
            fmt::format("{}: <{}>: a public header reaches no third-party or system header; include it "
                        "in the .cpp",
                        at(file, include), include.path));
      } else if (internal.contains(include.path.substr(std::string_view("tandem/").size()))) {
        problems.push_back(fmt::format("{}: <{}>: this header is public, that one is listed in INTERNAL_HEADERS",
                                       at(file, include), include.path));
      }
    }
  }
}

void every_header_is_listed(const SourceTree& tree, Problems& problems) {
  for (const SourceFile& file : tree.files) {
    const auto layer = tree.layers.find(file.layer());
    if (layer == tree.layers.end() || !file.is_header()) continue;
    const auto& [public_headers, internal_headers, bridge_headers] = layer->second;
    if (!public_headers.contains(file.path) && !internal_headers.contains(file.path) &&
        !bridge_headers.contains(file.path)) {
      problems.push_back(fmt::format("{}:1: list it in {}/CMakeLists.txt, under PUBLIC_HEADERS or INTERNAL_HEADERS",
                                     file.path, layer->first));
    }
  }
}

void bridges_are_for_users(const SourceTree& tree, Problems& problems) {
  for (const SourceFile& file : tree.files) {
    for (const Include& include : file.includes) {
      const auto to = tree.layers.find(included_layer(include));
      const bool ours = file.path == "tandem.h" || tree.layers.contains(file.layer());
      if (ours && to != tree.layers.end() &&
          to->second.bridge_headers.contains(include.path.substr(std::string_view("tandem/").size()))) {
        problems.push_back(fmt::format("{}: <{}>: this header leads to another library: only programs include it",
                                       at(file, include), include.path));
      }
    }
  }
}

bool is_cuda_header(const std::string& path) {
  for (const char* prefix :
       {"cuda", "cublas", "cudnn", "cub/", "thrust/", "cooperative_groups", "nccl", "nvtx", "nvml"}) {
    if (path.starts_with(prefix)) return true;
  }
  return false;
}

void cuda_headers_stay_in_cuda_folders(const SourceTree& tree, Problems& problems) {
  for (const SourceFile& file : tree.files) {
    // The emulated GPU is what CUDA's headers declare.
    if (file.path.find("/cuda/") != std::string::npos || file.path.starts_with("tests/emulated_gpu/")) continue;
    for (const Include& include : file.includes) {
      if (is_cuda_header(include.path)) {
        problems.push_back(fmt::format("{}: <{}>: CUDA headers are included only by files in a cuda/ folder",
                                       at(file, include), include.path));
      }
    }
  }
}

void no_file_is_too_long(const SourceTree& tree, Problems& problems) {
  for (const SourceFile& file : tree.files) {
    if (file.lines > kMaxLines) {
      problems.push_back(fmt::format("{}:{}: {} lines, at most {} are allowed; split it by what its parts are about",
                                     file.path, kMaxLines + 1, file.lines, kMaxLines));
    }
  }
}

Problems check(const Rule& rule, const SourceTree& tree) {
  Problems problems;
  rule(tree, problems);
  return problems;
}

// ---- the project ----

class ProjectStructure : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { tree_ = parse_tree(read_texts(TANDEM_SOURCE_DIR)); }
  static void expect_holds(const Rule& rule) {
    const Problems problems = check(rule, tree_);
    EXPECT_TRUE(problems.empty()) << fmt::format("{}", fmt::join(problems, "\n"));
  }

  static inline SourceTree tree_;
};

TEST_F(ProjectStructure, SourcesWereFound) {
  EXPECT_TRUE(tree_.layers.contains("core")) << "no layers under " << TANDEM_SOURCE_DIR;
  EXPECT_TRUE(tree_.layers["core"].public_headers.contains("core/error.h"));
  EXPECT_GT(tree_.files.size(), 20u);
}

TEST_F(ProjectStructure, IncludesPointDownwards) { expect_holds(includes_point_downwards); }

TEST_F(ProjectStructure, PublicHeadersReachOnlyPublicAndStandardHeaders) {
  expect_holds(public_headers_reach_only_public_and_standard_headers);
}

TEST_F(ProjectStructure, BridgesAreForUsers) { expect_holds(bridges_are_for_users); }

TEST_F(ProjectStructure, EveryHeaderIsListed) { expect_holds(every_header_is_listed); }

TEST_F(ProjectStructure, CudaHeadersStayInCudaFolders) { expect_holds(cuda_headers_stay_in_cuda_folders); }

TEST_F(ProjectStructure, NoFileIsTooLong) { expect_holds(no_file_is_too_long); }

// ---- the rules themselves ----

TEST(StructureRules, UpwardIncludeIsNamedWithItsLine) {
  const SourceTree tree = parse_tree({{"core/a.cpp", "#include <vector>\n#  include <tandem/tensor/tensor.h>\n"},
                                      {"tensor/b.cpp", "#include <tandem/core/a.h>\n#include <tandem/tensor/c.h>\n"}});
  EXPECT_THAT(check(includes_point_downwards, tree),
              ElementsAre(HasSubstr("core/a.cpp:2: <tandem/tensor/tensor.h>: core may include only itself")));
}

TEST(StructureRules, NeighboursMayNotIncludeEachOther) {
  const SourceTree tree = parse_tree({{"nn/a.cpp", "#include <tandem/optim/sgd.h>\n"},
                                      {"optim/b.cpp", "#include <tandem/nn/module.h>\n"},
                                      {"optim/c.cpp", "#include <tandem/autograd/engine.h>\n"}});
  EXPECT_THAT(check(includes_point_downwards, tree),
              ElementsAre(HasSubstr("nn/a.cpp:1: <tandem/optim/sgd.h>"), HasSubstr("optim/b.cpp:1: ")));
}

TEST(StructureRules, UmbrellaAndQuotedIncludesAreNotForLayers) {
  const SourceTree tree = parse_tree({{"nn/a.cpp", "#include <tandem/tandem.h>\n#include \"linear.h\"\n"},
                                      {"examples/b.cpp", "#include <tandem/tandem.h>\n#include \"linear.h\"\n"}});
  EXPECT_THAT(check(includes_point_downwards, tree),
              ElementsAre(HasSubstr("nn/a.cpp:1: <tandem/tandem.h>"), HasSubstr("nn/a.cpp:2: \"linear.h\"")));
}

TEST(StructureRules, NewLayerNeedsAPlaceInTheOrder) {
  const SourceTree tree = parse_tree({{"sparse/CMakeLists.txt", "tandem_layer(sparse SOURCES a.cpp)\n"}});
  EXPECT_THAT(check(includes_point_downwards, tree), ElementsAre(HasSubstr("layer 'sparse' has no place")));
}

TEST(StructureRules, PublicHeaderMayNotReachThirdPartyOrInternalHeaders) {
  const std::string list =
      "tandem_layer(core # PUBLIC_HEADERS no.h\n SOURCES a.cpp PUBLIC_HEADERS a.h\n  b.h "
      "INTERNAL_HEADERS c.h\n LINK fmt::fmt)\n";
  const SourceTree tree = parse_tree({{"core/CMakeLists.txt", list},
                                      {"core/a.cpp", "#include <fmt/format.h>\n"},
                                      {"core/a.h", "#include <fmt/format.h>\n#include <vector>\n#include <zlib.h>\n"},
                                      {"core/b.h", "#include <tandem/core/a.h>\n#include <tandem/core/c.h>\n"},
                                      {"core/c.h", "#include <fmt/format.h>\n"}});
  EXPECT_THAT(check(public_headers_reach_only_public_and_standard_headers, tree),
              ElementsAre(HasSubstr("core/a.h:1: <fmt/format.h>"), HasSubstr("core/a.h:3: <zlib.h>"),
                          HasSubstr("core/b.h:2: <tandem/core/c.h>: this header is public")));
  EXPECT_THAT(check(every_header_is_listed, tree), IsEmpty());
}

TEST(StructureRules, BridgeMayReachItsLibraryButNothingReachesIt) {
  const SourceTree tree =
      parse_tree({{"tensor/CMakeLists.txt", "tandem_layer(tensor PUBLIC_HEADERS a.h BRIDGE_HEADERS eigen.h LINK x)\n"},
                  {"tensor/a.h", "#include <tandem/tensor/eigen.h>\n"},
                  {"tensor/eigen.h", "#include <Eigen/Core>\n"},
                  {"tests/b.cpp", "#include <tandem/tensor/eigen.h>\n"}});
  EXPECT_THAT(check(public_headers_reach_only_public_and_standard_headers, tree), IsEmpty());
  EXPECT_THAT(check(every_header_is_listed, tree), IsEmpty());
  EXPECT_THAT(check(bridges_are_for_users, tree), ElementsAre(HasSubstr("tensor/a.h:1: <tandem/tensor/eigen.h>")));
}

TEST(StructureRules, HeaderInNoListIsNamed) {
  const SourceTree tree = parse_tree({{"core/CMakeLists.txt", "tandem_layer(core PUBLIC_HEADERS a.h)\n"},
                                      {"core/a.h", ""},
                                      {"core/cuda/b.h", ""},
                                      {"examples/c.h", ""}});
  EXPECT_THAT(check(every_header_is_listed, tree), ElementsAre(HasSubstr("core/cuda/b.h:1: list it in core/")));
}

TEST(StructureRules, CudaHeaderOutsideACudaFolderIsNamed) {
  const SourceTree tree = parse_tree({{"core/cuda.h", "#include <cuda_runtime_api.h>\n"},
                                      {"core/cuda/device.cpp", "#include <cuda_runtime_api.h>\n"},
                                      {"core/device.cpp", "#include <tandem/core/cuda.h>\n"}});
  EXPECT_THAT(check(cuda_headers_stay_in_cuda_folders, tree),
              ElementsAre(HasSubstr("core/cuda.h:1: <cuda_runtime_api.h>")));
}

TEST(StructureRules, LongFileIsNamed) {
  std::string text;
  for (int line = 0; line < kMaxLines; ++line) {
    text += "//\n";
  }
  const SourceTree tree = parse_tree({{"core/long.cpp", text + "//\n"}, {"core/short.cpp", text}});
  EXPECT_THAT(check(no_file_is_too_long, tree), ElementsAre(HasSubstr("core/long.cpp:601: 601 lines")));
}

}  // namespace
}  // namespace tandem::layers
