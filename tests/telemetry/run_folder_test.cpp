#include <tandem/telemetry/run_folder.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/core/error.h>
#include <tandem/telemetry/environment.h>

#include "support/message.h"
#include "support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::ThrowsMessage;

using telemetry::Field;
using telemetry::Fields;
using telemetry::git_commit;
using telemetry::read_json;
using telemetry::RunFolder;
using telemetry::to_json;
using test::message_of;
using test::read_text;
using test::TempDir;
using test::write_text;

namespace fs = std::filesystem;

/// Limits the size of files of this process, so that writing fails half-way as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &saved_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, saved_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &saved_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit saved_{};
  void (*handler_)(int) = nullptr;
};

RunFolder folder_in(const TempDir& dir) { return RunFolder({.path = dir.file("run")}); }

TEST(RunFolder, IsNamedAfterProgramAndTime) {
  const TempDir dir;
  const RunFolder run({.program = "mlp", .parent = dir.file("deep/runs")});
  EXPECT_THAT(run.path(), MatchesRegex(dir.path() + "/deep/runs/mlp-20[0-9]{6}-[0-9]{6}(-[0-9]+)?"));
  EXPECT_TRUE(fs::is_directory(run.path()));
}

// The folder may lie where others can make names.
TEST(RunFolder, WritesThroughNoLinkThatSomebodyElseMade) {
  const TempDir dir;
  const std::string precious = dir.write("precious", "kept");
  for (const bool symbolic : {true, false}) {
    RunFolder run({.path = dir.file(symbolic ? "a" : "b")});
    symbolic ? fs::create_symlink(precious, run.path() + "/metrics.jsonl")
             : fs::create_hard_link(precious, run.path() + "/metrics.jsonl");
    EXPECT_THAT([&] { run.append_metrics({{"epoch", 1}}); },
                ThrowsMessage<IoError>(HasSubstr(symbolic ? "this is a symbolic link" : "(a hard link)")));
  }
  EXPECT_EQ(read_text(precious), "kept");
}

TEST(RunFolder, RunsOfTheSameSecondGetTheirOwn) {
  const TempDir dir;
  std::set<std::string> paths;
  for (int i = 0; i < 12; ++i) {
    paths.insert(RunFolder({.program = "mlp", .parent = dir.path()}).path());
  }
  EXPECT_EQ(paths.size(), 12u);
  EXPECT_THAT(*std::next(paths.begin()), MatchesRegex(".*-[0-9]{6}(-[0-9]+)?"));
}

TEST(RunFolder, GivenPathIsTakenAsItIs) {
  const TempDir dir;
  EXPECT_EQ(RunFolder({.program = "mlp", .path = dir.file("a/b")}).path(), dir.file("a/b"));
  EXPECT_TRUE(fs::is_directory(dir.file("a/b")));
  EXPECT_NO_THROW(RunFolder({.path = dir.file("a/b")})) << "an empty folder may be used";
}

TEST(RunFolder, GivenPathWithFilesIsRefused) {
  const TempDir dir;
  folder_in(dir).write_file("weights", "precious");
  EXPECT_THAT([&] { folder_in(dir); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("'" + dir.file("run") + "'"), HasSubstr("not empty"),
                                           HasSubstr("give another path or remove it"))));
  EXPECT_EQ(read_text(dir.file("run/weights")), "precious");
}

// Simulates processes that were started as ranks and do not know of each other.
TEST(RunFolder, GivenPathIsOneRunsAloneWhileThatLives) {
  const TempDir dir;
  {
    const RunFolder first = folder_in(dir);
    EXPECT_THAT([&] { folder_in(dir); }, ThrowsMessage<IoError>("'" + dir.file("run") +
                                                                "': cannot use it as the run folder: another run does; "
                                                                "give another path"));
  }
  EXPECT_NO_THROW(folder_in(dir)) << "one that left nothing";
}

TEST(RunFolder, AnEarlierRunGoesOnWhereThatIsAskedFor) {
  const TempDir dir;
  const std::string path = dir.file("run");
  {
    RunFolder folder({.path = path});
    folder.append_metrics({{"epoch", 1}});
    folder.append_metrics({{"epoch", 2}});
  }
  RunFolder folder({.path = path, .reuse = true});
  EXPECT_EQ(folder.metrics_bytes(), 24);
  folder.cut_metrics(12);
  folder.cut_metrics(100);  // there is no more
  folder.append_metrics({{"epoch", 3}});
  EXPECT_EQ(read_text(path + "/metrics.jsonl"), "{\"epoch\":1}\n{\"epoch\":3}\n");
  EXPECT_EQ(folder.metrics_bytes(), 24);
}

TEST(RunFolder, AJobThatIsRestartedHasItsFolderAgain) {
  const TempDir dir;
  const auto path_of = [&](const std::string& job, const std::string& path = "") {
    RunFolder folder({.program = "mlp", .path = path, .parent = dir.path(), .job = job});
    return folder.path();
  };
  const std::string first = path_of("a");
  EXPECT_EQ(path_of("a"), first);
  const std::string second = path_of("b");
  EXPECT_NE(second, first);
  EXPECT_EQ(path_of("b"), second);
  EXPECT_EQ(path_of("a", first), first);
  EXPECT_THAT(message_of<IoError>([&] { path_of("c", first); }), HasSubstr("it exists and is not empty"));
}

TEST(ReadJson, GivesBackWhatToJsonWrote) {
  const TempDir dir;
  const Fields fields{{"flag", true},
                      {"count", std::int64_t{-3}},
                      {"rate", 0.5},
                      {"name", std::string("a\"b")},
                      {"list", std::vector<double>{1, 2.5}},
                      {"words", std::vector<std::string>{"x", "y"}}};
  const std::string text = to_json(fields, 2);
  EXPECT_EQ(to_json(read_json(dir.write("a.json", text)), 2), text);
  EXPECT_EQ(message_of<IoError>([&] { read_json(dir.file("none")); }),
            "cannot read '" + dir.file("none") + "': No such file or directory");
  for (const char* wrong : {"", "[1]", "{\"a\": 1", "3"}) {
    EXPECT_EQ(message_of<IoError>([&] { read_json(dir.write("b.json", wrong)); }),
              "'" + dir.file("b.json") + "': expected one JSON object");
  }
  EXPECT_EQ(
      message_of<IoError>([&] { read_json(dir.write("c.json", "{\"a\": {}}")); }),
      "'" + dir.file("c.json") + "': 'a' is neither a number, a text, true, false, nor a list of numbers or texts");
}

TEST(RunFolder, GivenPathThatIsAFileIsRefused) {
  const TempDir dir;
  write_text(dir.file("run"), "x");
  EXPECT_THAT([&] { folder_in(dir); },
              ThrowsMessage<IoError>("cannot create the folder '" + dir.file("run") + "': Not a directory"));
}

TEST(RunFolder, FailureToCreateNamesPathAndReason) {
  const TempDir dir;
  write_text(dir.file("runs"), "x");
  EXPECT_THAT([&] { RunFolder({.program = "mlp", .parent = dir.file("runs")}); },
              ThrowsMessage<IoError>("cannot create the folder '" + dir.file("runs") + "': Not a directory"));
}

TEST(RunFolder, NeedsAProgramNameOrAPath) {
  EXPECT_THROW(RunFolder({}), ConfigError);
  EXPECT_THROW(RunFolder({.program = "a/b"}), ConfigError);
}

TEST(RunFolder, ConfigKeepsOrderAndTypes) {
  const TempDir dir;
  folder_in(dir).write_config({{"program", "mlp"},
                               {"epochs", 30},
                               {"seed", std::int64_t{1} << 60},
                               {"lr", 0.001},
                               {"momentum", 1.0},
                               {"shuffle", true},
                               {"data", "a \"b\"\n"}});
  EXPECT_EQ(read_text(dir.file("run/config.json")), R"({
  "program": "mlp",
  "epochs": 30,
  "seed": 1152921504606846976,
  "lr": 0.001,
  "momentum": 1.0,
  "shuffle": true,
  "data": "a \"b\"\n"
}
)");
}

TEST(RunFolder, MetricsAreOneObjectALineAndThereAtOnce) {
  const TempDir dir;
  RunFolder run = folder_in(dir);
  run.append_metrics({{"epoch", 1}, {"loss", 0.5}});
  EXPECT_EQ(read_text(dir.file("run/metrics.jsonl")), "{\"epoch\":1,\"loss\":0.5}\n");
  RunFolder moved = std::move(run);
  moved.append_metrics({});
  moved.append_metrics({{"note", "x\ny"}});
  EXPECT_EQ(read_text(dir.file("run/metrics.jsonl")), "{\"epoch\":1,\"loss\":0.5}\n{}\n{\"note\":\"x\\ny\"}\n");
}

TEST(RunFolder, NumbersThatJsonLacksAreNull) {
  const TempDir dir;
  RunFolder run = folder_in(dir);
  run.append_metrics({{"a", std::nan("")}, {"b", std::numeric_limits<double>::infinity()}, {"c", "\xff"}});
  EXPECT_EQ(read_text(dir.file("run/metrics.jsonl")), "{\"a\":null,\"b\":null,\"c\":\"\xEF\xBF\xBD\"}\n");
}

TEST(RunFolder, KilledRunKeepsItsMetrics) {
  const TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    RunFolder run = folder_in(dir);
    run.append_metrics({{"epoch", 1}});
    run.append_metrics({{"epoch", 2}});
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_text(dir.file("run/metrics.jsonl")), "{\"epoch\":1}\n{\"epoch\":2}\n");
}

TEST(RunFolder, FullDiskLeavesWholeLinesOfMetrics) {
  const TempDir dir;
  RunFolder run = folder_in(dir);
  run.append_metrics({{"epoch", 1}});
  {
    const FileSizeLimit limit(20);
    EXPECT_THAT([&] { run.append_metrics({{"epoch", 2}}); },
                ThrowsMessage<IoError>("cannot write '" + dir.file("run/metrics.jsonl") + "': File too large"));
    EXPECT_EQ(read_text(dir.file("run/metrics.jsonl")), "{\"epoch\":1}\n");
  }
  run.append_metrics({{"epoch", 3}});
  EXPECT_EQ(read_text(dir.file("run/metrics.jsonl")), "{\"epoch\":1}\n{\"epoch\":3}\n");
}

TEST(RunFolder, FailedWriteKeepsTheOldFileAndNothingElse) {
  const TempDir dir;
  RunFolder run = folder_in(dir);
  run.write_file("report.txt", "old");
  {
    const FileSizeLimit limit(10);
    EXPECT_THAT([&] { run.write_file("report.txt", std::string(100, 'x')); },
                ThrowsMessage<IoError>("cannot write '" + dir.file("run/report.txt") + "': File too large"));
  }
  EXPECT_EQ(read_text(dir.file("run/report.txt")), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(run.path()), fs::directory_iterator()), 1);
  run.write_file("report.txt", "new");
  EXPECT_EQ(read_text(dir.file("run/report.txt")), "new");
}

TEST(RunFolder, FileThatCannotBeReplacedIsNamed) {
  const TempDir dir;
  RunFolder run = folder_in(dir);
  fs::create_directory(run.file("taken"));
  EXPECT_THAT([&] { run.write_file("taken", "x"); },
              ThrowsMessage<IoError>("cannot write '" + run.file("taken") +
                                     "': this is a directory, expected the name of a file"));
  EXPECT_EQ(std::distance(fs::directory_iterator(run.path()), fs::directory_iterator()), 1);
}

TEST(RunFolder, FolderThatIsGoneIsNamed) {
  const TempDir dir;
  RunFolder run = folder_in(dir);
  fs::remove_all(run.path());
  EXPECT_THAT([&] { run.append_metrics({}); },
              ThrowsMessage<IoError>("cannot open '" + dir.file("run/metrics.jsonl") + "': No such file or directory"));
}

TEST(RunFolder, FileNamesAreNotPaths) {
  const TempDir dir;
  RunFolder run = folder_in(dir);
  for (const char* name : {"", ".", "..", "a/b", "/etc/x"}) {
    EXPECT_THROW(run.write_file(name, "x"), ConfigError) << name;
  }
  EXPECT_EQ(run.file("curves.svg"), dir.file("run/curves.svg"));
}

TEST(RunFolder, SaysWhatItsRunWasMadeWith) {
  const TempDir dir;
  RunFolder(telemetry::RunFolderOptions{.path = dir.file("run")}).write_config({});
  const Fields made_with = read_json(dir.file("run/environment.json"));
  std::vector<std::string> names;
  for (const Field& field : made_with) {
    names.push_back(field.name);
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"tandem", "git_commit", "started", "host", "cores", "isa", "compiler"}));
}

TEST(GitCommit, IsReadFromTheWorkTreeAround) {
  const TempDir dir;
  const std::string commit(40, 'a');
  const std::string other(40, 'b');
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(dir.file(path)).parent_path());
    std::ofstream(dir.file(path)) << text;
  };
  std::filesystem::create_directories(dir.file("tree/src/deep"));
  write("tree/.git/HEAD", commit + "\n");
  EXPECT_EQ(git_commit(dir.file("tree/src/deep")), commit);
  write("tree/.git/HEAD", "ref: refs/heads/main\n");
  EXPECT_EQ(git_commit(dir.file("tree")), "") << "no commit yet";
  write("tree/.git/packed-refs", "# pack-refs\n" + std::string(5000, '#') + "\n" + commit + " refs/heads/domain\n" +
                                     other + " refs/heads/main\n");
  EXPECT_EQ(git_commit(dir.file("tree")), other);
  write("tree/.git/refs/heads/main", commit + "\n");
  EXPECT_EQ(git_commit(dir.file("tree")), commit);
  write("linked/.git", "gitdir: ../tree/.git/worktrees/linked\n");
  write("tree/.git/worktrees/linked/HEAD", "ref: refs/heads/side\n");
  write("tree/.git/worktrees/linked/commondir", "../..\n");
  write("tree/.git/refs/heads/side", other + "\n");
  EXPECT_EQ(git_commit(dir.file("linked")), other);
  write("tree/.git/HEAD", "ref: refs/heads/alias\n");
  write("tree/.git/refs/heads/alias", "ref: refs/heads/side\n");
  EXPECT_EQ(git_commit(dir.file("tree")), other) << "one name may stand for another";
  write("tree/.git/refs/heads/side", "ref: refs/heads/alias\n");
  EXPECT_EQ(git_commit(dir.file("tree")), "") << "names that go in a circle";
  write("odd/.git/HEAD", "ref: ../../secret\n");
  write("secret", "no commit\n");
  EXPECT_EQ(git_commit(dir.file("odd")), "");
}

}  // namespace
}  // namespace tandem
