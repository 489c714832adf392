#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layers/source_tree.h"

// Checks the structure of the project on its include lines: the order of the layers, and the headers that a public
// header may reach. A new layer needs a row in kStandsOn. Each rule is also tested on a small tree that breaks it.

namespace tandem::layers {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Problems = std::vector<std::string>;
using Rule = std::function<void(const SourceTree&, Problems&)>;

constexpr int kMaxLines = 600;
constexpr std::string_view kBuildHeader = "build.h";  // made by configure; below all layers

// The folders on which each folder stands directly. A folder may include these, and everything on which they stand. A
// folder without a row belongs to the enclosing one. nn and optim are independent of each other, as are the kinds of
// parallelism and the two halves of a kernel. data builds on tensors only, and telemetry needs no tensor.
const std::map<std::string, std::set<std::string>> kStandsOn{
    {"core", {}},
    {"kernels", {"core"}},
    {"kernels/cpu", {"kernels"}},
    {"kernels/cuda", {"kernels"}},
    {"tensor", {"kernels"}},
    {"autograd", {"tensor"}},
    {"nn", {"autograd"}},
    {"optim", {"autograd"}},
    {"graph", {"autograd", "kernels/cuda"}},
    {"data", {"tensor"}},
    {"checkpoint", {"nn", "optim", "data", "telemetry", "parallel/comm"}},
    {"telemetry", {"core"}},
    {"parallel/rendezvous", {"core"}},
    {"parallel/comm", {"parallel/rendezvous", "autograd"}},
    {"parallel/comm/threads", {"parallel/comm"}},
    {"parallel/comm/nccl", {"parallel/comm"}},
    {"parallel/comm/transport_gloo", {"parallel/comm"}},
    {"parallel/comm/shared_memory", {"parallel/comm"}},
    {"parallel/comm/hosts", {"parallel/comm/transport_gloo", "parallel/comm/shared_memory"}},
    {"parallel", {"parallel/comm", "telemetry"}},
    {"parallel/data_parallel", {"parallel", "nn", "optim", "data"}},
    {"parallel/distributed", {"parallel", "nn", "optim", "data"}},
    {"parallel/pipeline", {"parallel", "nn"}},
    {"parallel/tensor_parallel", {"parallel", "nn"}},
    {"parallel/job", {"parallel/rendezvous", "parallel/comm/threads", "parallel/comm/hosts", "parallel/comm/nccl"}},
};

std::string at(const SourceFile& file, const Include& include) { return fmt::format("{}:{}", file.path, include.line); }

// "kernels/cpu/gemm.h" for <tandem/kernels/cpu/gemm.h>, or empty for a header outside the project.
std::string included_path(const Include& include) {
  constexpr std::string_view kPrefix = "tandem/";
  return include.path.starts_with(kPrefix) ? include.path.substr(kPrefix.size()) : std::string();
}

// The top folder, or the path itself for a file outside any folder: "tandem.h".
std::string layer_of(const std::string& path) { return path.substr(0, path.find('/')); }

// The nearest folder around `path` that has a row in kStandsOn, else the top folder.
std::string unit_of(const std::string& path) {
  for (std::string folder = path; folder.find('/') != std::string::npos;) {
    folder.resize(folder.rfind('/'));
    if (kStandsOn.contains(folder)) return folder;
  }
  return layer_of(path);
}

void add_all_below(const std::string& unit, std::set<std::string>& all) {
  for (const std::string& below : kStandsOn.at(unit)) {
    if (all.insert(below).second) add_all_below(below, all);
  }
}

void includes_point_downwards(const SourceTree& tree, Problems& problems) {
  for (const auto& [name, layer] : tree.layers) {
    if (!kStandsOn.contains(name)) {
      problems.push_back(
          fmt::format("{}/CMakeLists.txt: layer '{}' has no place in the order of layers yet; "
                      "give it a row in kStandsOn of this test",
                      name, name));
    }
  }
  for (const SourceFile& file : tree.files) {
    const std::string from = unit_of(file.path);
    if (!kStandsOn.contains(from)) continue;
    std::set<std::string> allowed;
    add_all_below(from, allowed);
    for (const Include& include : file.includes) {
      const std::string path = included_path(include);
      const std::string to = unit_of(path);
      if (include.quoted) {
        problems.push_back(
            fmt::format("{}: \"{}\": inside a layer write <tandem/{}/...>, so that it reads the same "
                        "everywhere",
                        at(file, include), include.path, from));
      } else if (!path.empty() && to != from && path != kBuildHeader && !allowed.contains(to)) {
        problems.push_back(fmt::format("{}: <{}>: {} may include only {}; move the code down, or pass in what it needs",
                                       at(file, include), include.path, from,
                                       allowed.empty() ? "itself" : fmt::format("{}", fmt::join(allowed, ", "))));
      }
    }
  }
}

// Whether a header is a standard one: it has neither a folder nor an extension (<vector>, <cmath>).
bool is_standard(const Include& include) { return include.path.find_first_of("/.") == std::string::npos; }

// A header that no layer lists is internal. Bridge headers have their own rule below.
void public_headers_reach_only_public_and_standard_headers(const SourceTree& tree, Problems& problems) {
  std::set<std::string> exposed{"extend.h", "tandem.h"};
  for (const auto& [name, layer] : tree.layers) {
    exposed.insert(layer.public_headers.begin(), layer.public_headers.end());
  }
  for (const SourceFile& file : tree.files) {
    if (!exposed.contains(file.path)) continue;
    for (const Include& include : file.includes) {
      const std::string path = included_path(include);
      if (is_standard(include) || path == kBuildHeader) continue;
      if (path.empty()) {
        problems.push_back(
            fmt::format("{}: <{}>: a public header reaches no third-party or system header; include it "
                        "in the .cpp",
                        at(file, include), include.path));
      } else if (const auto to = tree.layers.find(layer_of(path));
                 !exposed.contains(path) && !(to != tree.layers.end() && to->second.bridge_headers.contains(path))) {
        problems.push_back(
            fmt::format("{}: <{}>: this header is public, that one is not in {}/CMakeLists.txt's "
                        "PUBLIC_HEADERS",
                        at(file, include), include.path, layer_of(path)));
      }
    }
  }
}

void listed_headers_are_there(const SourceTree& tree, Problems& problems) {
  std::set<std::string> files;
  for (const SourceFile& file : tree.files) {
    files.insert(file.path);
  }
  for (const auto& [name, layer] : tree.layers) {
    for (const std::set<std::string>* list : {&layer.public_headers, &layer.bridge_headers}) {
      for (const std::string& header : *list) {
        if (!files.contains(header)) {
          problems.push_back(fmt::format("{}/CMakeLists.txt: lists {}, which is not there", name, header));
        }
      }
    }
  }
}

void bridges_are_for_users(const SourceTree& tree, Problems& problems) {
  for (const SourceFile& file : tree.files) {
    for (const Include& include : file.includes) {
      const auto to = tree.layers.find(layer_of(included_path(include)));
      const bool ours = file.path == "tandem.h" || tree.layers.contains(file.layer());
      const bool is_its_source = std::filesystem::path(file.path).replace_extension(".h") == included_path(include);
      if (ours && !is_its_source && to != tree.layers.end() &&
          to->second.bridge_headers.contains(included_path(include))) {
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
    // The emulated GPU implements the declarations of CUDA's headers.
    if (file.path.find("/cuda/") != std::string::npos || file.path.starts_with("tests/emulated_gpu/")) continue;
    for (const Include& include : file.includes) {
      if (is_cuda_header(include.path)) {
        problems.push_back(fmt::format("{}: <{}>: CUDA headers are included only by files in a cuda/ folder",
                                       at(file, include), include.path));
      }
    }
  }
}

void gloo_stays_in_its_transport(const SourceTree& tree, Problems& problems) {
  for (const SourceFile& file : tree.files) {
    if (!tree.layers.contains(file.layer()) || file.path.starts_with("parallel/comm/transport_gloo/")) continue;
    for (const Include& include : file.includes) {
      if (include.path.starts_with("gloo/")) {
        problems.push_back(fmt::format("{}: <{}>: Gloo's headers are included only in parallel/comm/transport_gloo",
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

TEST_F(ProjectStructure, ListedHeadersAreThere) { expect_holds(listed_headers_are_there); }

TEST_F(ProjectStructure, CudaHeadersStayInCudaFolders) { expect_holds(cuda_headers_stay_in_cuda_folders); }

TEST_F(ProjectStructure, GlooStaysInItsTransport) { expect_holds(gloo_stays_in_its_transport); }

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
      "tandem_layer(core # PUBLIC_HEADERS no.h\n FAMILIES b\n  SOURCES a.cpp PUBLIC_HEADERS a.h\n LINK fmt::fmt)\n";
  const SourceTree tree = parse_tree({{"core/CMakeLists.txt", list},
                                      {"core/a.cpp", "#include <fmt/format.h>\n"},
                                      {"core/a.h", "#include <fmt/format.h>\n#include <vector>\n#include <zlib.h>\n"},
                                      {"core/b.h", "#include <tandem/core/a.h>\n#include <tandem/core/c.h>\n"},
                                      {"core/c.h", "#include <fmt/format.h>\n"}});
  EXPECT_THAT(check(public_headers_reach_only_public_and_standard_headers, tree),
              ElementsAre(HasSubstr("core/a.h:1: <fmt/format.h>"), HasSubstr("core/a.h:3: <zlib.h>"),
                          HasSubstr("core/b.h:2: <tandem/core/c.h>: this header is public")));
  EXPECT_THAT(check(listed_headers_are_there, tree), IsEmpty());
}

TEST(StructureRules, BridgeMayReachItsLibraryButNothingReachesIt) {
  const SourceTree tree =
      parse_tree({{"tensor/CMakeLists.txt", "tandem_layer(tensor PUBLIC_HEADERS a.h BRIDGE_HEADERS eigen.h LINK x)\n"},
                  {"tensor/a.h", "#include <tandem/tensor/eigen.h>\n"},
                  {"tensor/eigen.h", "#include <Eigen/Core>\n"},
                  {"tests/b.cpp", "#include <tandem/tensor/eigen.h>\n"}});
  EXPECT_THAT(check(public_headers_reach_only_public_and_standard_headers, tree), IsEmpty());
  EXPECT_THAT(check(listed_headers_are_there, tree), IsEmpty());
  EXPECT_THAT(check(bridges_are_for_users, tree), ElementsAre(HasSubstr("tensor/a.h:1: <tandem/tensor/eigen.h>")));
}

TEST(StructureRules, ListedHeaderThatIsGoneIsNamed) {
  const SourceTree tree = parse_tree({{"core/CMakeLists.txt", "tandem_layer(core PUBLIC_HEADERS a.h b.h)\n"},
                                      {"core/a.h", ""},
                                      {"core/cuda/c.h", ""}});
  EXPECT_THAT(check(listed_headers_are_there, tree), ElementsAre(HasSubstr("core/CMakeLists.txt: lists core/b.h")));
}

TEST(StructureRules, FoldersOfALayerHaveAnOrderToo) {
  const SourceTree tree = parse_tree({{"parallel/rendezvous/a.cpp", "#include <tandem/parallel/comm/work.h>\n"},
                                      {"parallel/comm/b.cpp", "#include <tandem/parallel/rendezvous/store.h>\n"},
                                      {"parallel/distributed/c.cpp",
                                       "#include <tandem/parallel/structure.h>\n"
                                       "#include <tandem/parallel/data_parallel/scatter_gather.h>\n"},
                                      {"kernels/cpu/isa/d.cpp", "#include <tandem/kernels/cuda/launch/queue.h>\n"}});
  EXPECT_THAT(check(includes_point_downwards, tree),
              ElementsAre(HasSubstr("kernels/cpu/isa/d.cpp:1: "), HasSubstr("parallel/distributed/c.cpp:2: "),
                          HasSubstr("parallel/rendezvous/a.cpp:1: <tandem/parallel/comm/work.h>")));
}

TEST(StructureRules, CudaHeaderOutsideACudaFolderIsNamed) {
  const SourceTree tree = parse_tree({{"core/cuda.h", "#include <cuda_runtime_api.h>\n"},
                                      {"core/cuda/device.cpp", "#include <cuda_runtime_api.h>\n"},
                                      {"core/device.cpp", "#include <tandem/core/cuda.h>\n"}});
  EXPECT_THAT(check(cuda_headers_stay_in_cuda_folders, tree),
              ElementsAre(HasSubstr("core/cuda.h:1: <cuda_runtime_api.h>")));
}

TEST(StructureRules, GlooHeaderOutsideItsTransportIsNamed) {
  const SourceTree tree = parse_tree({{"parallel/CMakeLists.txt", "tandem_layer(parallel SOURCES a.cpp)\n"},
                                      {"parallel/comm/hosts/messages.cpp", "#include <gloo/context.h>\n"},
                                      {"parallel/comm/transport_gloo/wire.cpp", "#include <gloo/context.h>\n"}});
  EXPECT_THAT(check(gloo_stays_in_its_transport, tree),
              ElementsAre(HasSubstr("parallel/comm/hosts/messages.cpp:1: <gloo/context.h>")));
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
