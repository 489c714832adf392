#include <tandem/parallel/rendezvous/environment.h>

#include <map>

#include <gtest/gtest.h>

#include <tandem/parallel/rendezvous/text.h>

#include "support/message.h"

// A process's rank in the job, from the variables of each launcher.

namespace tandem::test {
namespace {

using parallel::InitMethod;
using parallel::read_world;
using parallel::WorldArguments;
using parallel::WorldInfo;
using Source = WorldInfo::Source;
using Variables = std::map<std::string, std::string>;

parallel::EnvironmentLookup in(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

WorldInfo world_in(Variables variables) { return read_world({}, {}, in(std::move(variables))); }

std::string error_in(Variables variables) {
  return message_of<ConfigError>([&] { world_in(std::move(variables)); });
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) {
    variables[name] = value;
  }
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Variables kTorchrun{
    {"RANK", "3"},       {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "2"},
    {"GROUP_RANK", "1"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29400"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kSlurm{{"SLURM_PROCID", "4"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_NTASKS", "5"},
                       {"SLURM_NNODES", "3"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_TASKS_PER_NODE", "2(x2),1"},
                       {"SLURM_JOB_ID", "123456"},
                       {"SLURM_STEP_NODELIST", "gpu-[007-008,20]"}};

TEST(World, WithoutALauncherIsOneProcess) {
  EXPECT_EQ(world_in({}), WorldInfo{});
  EXPECT_EQ(describe(WorldInfo{}), "rank 0 of 1 from no launcher");
}

TEST(World, IsReadFromTorchrun) {
  const WorldInfo expected{3, 8, 1, 2, 1, "node0", 29400, Source::torchrun};
  EXPECT_EQ(world_in(kTorchrun), expected);
  EXPECT_EQ(describe(expected), "rank 3 of 8 from RANK (local rank 1 of 2 on node 1), store at node0:29400");
}

TEST(World, OfAPodHasNoLocalRanks) {
  const WorldInfo expected{1, 4, 0, 1, 0, "job-master-0", 23456, Source::torchrun};
  EXPECT_EQ(world_in({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}}),
            expected);
}

TEST(World, LeavesTorchrunsPortToItsAgent) {
  const Variables agent = with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(world_in(agent).port, 29401);
  EXPECT_EQ(world_in(with(agent, {{"TANDEM_STORE_PORT", "5000"}})).port, 5000);
  EXPECT_EQ(world_in(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).port, 29400);
  EXPECT_EQ(error_in(with(agent, {{"MASTER_PORT", "65535"}})),
            "MASTER_PORT='65535' is torchrun's own, and there is none above it: export TANDEM_STORE_PORT=29500");
}

TEST(World, SaysWhetherTheLauncherHasTheStore) {
  EXPECT_FALSE(world_in(kTorchrun).store_is_hosted);
  EXPECT_TRUE(world_in(with(kTorchrun, {{"TANDEM_STORE_HOSTED", "1"}})).store_is_hosted);
  EXPECT_EQ(error_in(with(kTorchrun, {{"TANDEM_STORE_HOSTED", "yes"}})),
            "TANDEM_STORE_HOSTED='yes': expected a number of 0 to 1");
}

TEST(World, IsReadFromOpenMpi) {
  const WorldInfo expected{1, 2, 1, 2, 0, "127.0.0.1", 29500, Source::open_mpi};
  EXPECT_EQ(world_in(kOpenMpi), expected);
  EXPECT_EQ(describe(expected),
            "rank 1 of 2 from OMPI_COMM_WORLD_RANK (local rank 1 of 2 on node 0), store at 127.0.0.1:29500");
  // Jobs on one host have ports of their own.
  const auto in_job = [](const char* variable, const char* job) { return world_in(with(kOpenMpi, {{variable, job}})); };
  const WorldInfo first = in_job("PMIX_NAMESPACE", "1383792641");
  EXPECT_EQ(first.job, "Open MPI's job 1383792641");
  EXPECT_EQ(first, in_job("OMPI_MCA_ess_base_jobid", "1383792641"));
  EXPECT_NE(first.port, in_job("PMIX_NAMESPACE", "1383792642").port);
  EXPECT_NE(first.port, in_job("PMIX_NAMESPACE", "prterun-node7-4711@1").port);
  EXPECT_TRUE(first.port >= 20000 && first.port < 30000) << first.port;
  const Variables hosts = with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_EQ(error_in(hosts),
            "OMPI_COMM_WORLD_RANK is set, and MASTER_ADDR is missing: mpirun -x MASTER_ADDR=<address of rank 0's host> "
            "...");
  const WorldInfo placed = world_in(with(hosts, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "4000"}}));
  EXPECT_EQ(placed.address, "10.0.0.1");
  EXPECT_EQ(placed.port, 4000);
}

TEST(World, IsReadFromSlurm) {
  const WorldInfo expected{4, 5, 0, 1, 2, "gpu-007", 23456, Source::slurm, false, "Slurm's job 123456, step 0"};
  EXPECT_EQ(world_in(kSlurm), expected);
  EXPECT_EQ(describe(expected), "rank 4 of 5 from SLURM_PROCID (local rank 0 of 1 on node 2), store at gpu-007:23456");
  EXPECT_EQ(world_in(with(kSlurm, {{"MASTER_ADDR", "10.0.0.9"}})).address, "10.0.0.9");
  EXPECT_EQ(world_in(with(kSlurm, {{"SLURM_STEP_ID", "2"}})).port, 23658);
  const Variables one_host =
      with(kSlurm, {{"SLURM_NNODES", "1"}, {"SLURM_NODEID", "0"}, {"SLURM_TASKS_PER_NODE", "5"}});
  EXPECT_EQ(world_in(one_host).address, "127.0.0.1");
  EXPECT_EQ(world_in(one_host).local_world_size, 5);
}

TEST(World, OfAnSallocShellIsOneProcess) {
  EXPECT_EQ(world_in(without(kSlurm, "SLURM_STEP_ID")).source, Source::single_process);
  EXPECT_EQ(world_in(without(kSlurm, "SLURM_PROCID")).source, Source::single_process);
}

TEST(World, ComesFromTheFirstSourceAloneAndIsNeverMixed) {
  const Variables all = with(with(kSlurm, kOpenMpi), kTorchrun);
  EXPECT_EQ(world_in(all), world_in(kTorchrun));
  EXPECT_EQ(world_in(with(kSlurm, kOpenMpi)), world_in(kOpenMpi));
  EXPECT_EQ(error_in(without(all, "WORLD_SIZE")),
            "RANK is set, and WORLD_SIZE is missing: export WORLD_SIZE=<number of ranks>");
  const WorldInfo said = read_world({}, {.rank = 1, .world_size = 3}, in(all));
  EXPECT_EQ(said, (WorldInfo{1, 3, 0, 1, 0, "node0", 29400, Source::arguments}));
  EXPECT_EQ(describe(said), "rank 1 of 3 from the arguments, store at node0:29400");
}

TEST(World, TakesTheStoresPlaceFromTheInitMethod) {
  const InitMethod tcp = parallel::parse_init_method("tcp://[::1]:1234");
  const WorldInfo world = read_world(tcp, {}, in({{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
  EXPECT_EQ(world, (WorldInfo{1, 2, 0, 1, 0, "::1", 1234, Source::torchrun}));
  EXPECT_EQ(describe(world), "rank 1 of 2 from RANK (local rank 0 of 1 on node 0), store at [::1]:1234");
  const WorldInfo file = read_world(parallel::parse_init_method("file:///tmp/x"), {.rank = 0, .world_size = 2}, in({}));
  EXPECT_EQ(file.address, "");
  EXPECT_EQ(file.port, 0);
}

TEST(World, NamesWhatIsMissing) {
  EXPECT_EQ(error_in({{"WORLD_SIZE", "2"}}), "WORLD_SIZE is set, and RANK is missing: export RANK=<this rank>");
  EXPECT_EQ(error_in(without(kTorchrun, "MASTER_ADDR")),
            "RANK is set, and MASTER_ADDR is missing: export MASTER_ADDR=<address of rank 0's host>, 127.0.0.1 on one "
            "host");
  EXPECT_EQ(error_in(without(kTorchrun, "MASTER_PORT")),
            "RANK is set, and MASTER_PORT is missing: export MASTER_PORT=29500");
  EXPECT_EQ(error_in(without(kTorchrun, "LOCAL_WORLD_SIZE")),
            "RANK is set, and LOCAL_WORLD_SIZE is missing: export LOCAL_WORLD_SIZE=<number of ranks on this host>");
  EXPECT_EQ(error_in(without(kTorchrun, "LOCAL_RANK")),
            "RANK is set, and LOCAL_RANK is missing: export LOCAL_RANK=<this rank's number on its host>");
  EXPECT_EQ(error_in(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")),
            "OMPI_COMM_WORLD_RANK is set, and OMPI_COMM_WORLD_SIZE is missing: start it with mpirun -n 2 PROGRAM");
  EXPECT_EQ(error_in(without(kSlurm, "SLURM_NTASKS")),
            "SLURM_PROCID is set, and SLURM_NTASKS is missing: start it with srun -n 2 PROGRAM");
  EXPECT_EQ(error_in(with(kTorchrun, {{"MASTER_ADDR", ""}})),
            "RANK is set, and MASTER_ADDR is empty: export MASTER_ADDR=<address of rank 0's host>, 127.0.0.1 on one "
            "host");
  const auto error_of = [](WorldArguments arguments) {
    return message_of<ConfigError>([&] { read_world({}, arguments, in({})); });
  };
  EXPECT_EQ(error_of({.rank = 1}), "rank is given and world_size is not: give both, or neither");
  EXPECT_EQ(error_of({.world_size = 1}), "world_size is given and rank is not: give both, or neither");
  EXPECT_EQ(error_of({.rank = 0, .world_size = 2}),
            "rank is set, and MASTER_ADDR is missing: export MASTER_ADDR=<address of rank 0's host>, or name a "
            "tcp://host:port");
}

TEST(World, NamesNumbersThatAreNoneOrDoNotFit) {
  for (const char* text : {"", " 3", "3 ", "+3", "-1", "3x", "0x3", "3.0", "8", "99999999999999999999", "\n"}) {
    const std::string shown = std::string(text) == "\n" ? "." : text;
    EXPECT_EQ(error_in(with(kTorchrun, {{"RANK", text}})),
              shown.empty() ? "RANK is set, and RANK is empty: export RANK=<this rank>"
                            : "RANK='" + shown + "': expected a number of 0 to 7");
  }
  EXPECT_EQ(error_in(with(kTorchrun, {{"WORLD_SIZE", "0"}})), "WORLD_SIZE='0': expected a number of 1 to 1048576");
  EXPECT_EQ(error_in(with(kTorchrun, {{"LOCAL_RANK", "2"}})), "LOCAL_RANK='2': expected a number of 0 to 1");
  EXPECT_EQ(error_in(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})),
            "LOCAL_WORLD_SIZE='9': expected a number of 1 to 8");
  EXPECT_EQ(error_in(with(kTorchrun, {{"MASTER_PORT", "65536"}})),
            "MASTER_PORT='65536': expected a number of 1 to 65535");
  EXPECT_EQ(error_in(with(kTorchrun, {{"MASTER_ADDR", "[::1]:1"}})),
            "MASTER_ADDR='[::1]:1': expected a host name or an address, without brackets and port");
  EXPECT_EQ(error_in(with(kSlurm, {{"SLURM_TASKS_PER_NODE", "2(x2"}})),
            "SLURM_TASKS_PER_NODE='2(x2': expected the tasks of each node, as in '2(x3),1', with node 2 among them and "
            "at most 5 tasks there");
  EXPECT_EQ(error_in(with(kSlurm, {{"SLURM_STEP_NODELIST", "gpu-[0"}})),
            "SLURM_STEP_NODELIST='gpu-[0': expected names of hosts as in 'node[01-04,7]': export MASTER_ADDR=<address "
            "of rank 0's host>");
  EXPECT_EQ(message_of<ConfigError>([] { read_world({}, {.rank = 2, .world_size = 2}, in({})); }),
            "rank 2 of 2: expected a world_size of 1 to 1048576 and a rank below it");
}

TEST(SlurmLists, AreReadAsSlurmWritesThem) {
  using parallel::slurm_first_host;
  using parallel::slurm_tasks_on;
  EXPECT_EQ(slurm_tasks_on("4", 0), 4);
  EXPECT_EQ(slurm_tasks_on("2(x3),1,8(x2)", 2), 2);
  EXPECT_EQ(slurm_tasks_on("2(x3),1,8(x2)", 3), 1);
  EXPECT_EQ(slurm_tasks_on("2(x3),1,8(x2)", 5), 8);
  EXPECT_EQ(slurm_tasks_on("2(x3),1,8(x2)", 6), std::nullopt);
  for (const char* list : {"", ",", "0", "-1", "2(x", "2(x)", "(x2)", "2(x0)", "2x3", "2(x-1)"}) {
    EXPECT_EQ(slurm_tasks_on(list, 0), std::nullopt) << list;
  }
  EXPECT_EQ(slurm_first_host("login"), "login");
  EXPECT_EQ(slurm_first_host("a1,b2"), "a1");
  EXPECT_EQ(slurm_first_host("gpu-[007-012,20],login"), "gpu-007");
  EXPECT_EQ(slurm_first_host("rack[3,5]-gpu,x"), "rack3-gpu");
  for (const char* list : {"", ",a", "[", "a[", "a[]", "a[x]", "a b", "a[1]]", "a;b"}) {
    EXPECT_EQ(slurm_first_host(list), std::nullopt) << list;
  }
}

TEST(InitMethod, IsRead) {
  using parallel::parse_init_method;
  EXPECT_EQ(parse_init_method("env://"), InitMethod{});
  EXPECT_EQ(parse_init_method("tcp://node7:29500"), (InitMethod{InitMethod::Kind::tcp, "node7", 29500, ""}));
  EXPECT_EQ(parse_init_method("tcp://10.0.0.1:1"), (InitMethod{InitMethod::Kind::tcp, "10.0.0.1", 1, ""}));
  EXPECT_EQ(parse_init_method("tcp://[fe80::1%eth0]:65535"),
            (InitMethod{InitMethod::Kind::tcp, "fe80::1%eth0", 65535, ""}));
  EXPECT_EQ(parse_init_method("file:///tmp/a b"), (InitMethod{InitMethod::Kind::file, "", 0, "/tmp/a b"}));
  EXPECT_EQ(parse_init_method("file://here"), (InitMethod{InitMethod::Kind::file, "", 0, "here"}));
}

TEST(InitMethod, ThatIsMalformedIsShownHowItIsWritten) {
  const auto error_of = [](std::string_view text) {
    return message_of<ConfigError>([&] { parallel::parse_init_method(text); });
  };
  EXPECT_EQ(error_of(""), "init method '': expected env://, tcp://host:port or file://folder");
  EXPECT_EQ(error_of("env"),
            "init method 'env': expected env://, tcp://host:port or file://folder; did you mean env://?");
  EXPECT_EQ(error_of("tpc://a:1"), "init method 'tpc://a:1': expected env://, tcp://host:port or file://folder");
  EXPECT_EQ(error_of("env://x"), "init method 'env://x': nothing comes after env://; the variables say the rest");
  EXPECT_EQ(error_of("tcp://::1:80"),
            "init method 'tcp://::1:80': an IPv6 address needs brackets, as in tcp://[::1]:29500");
  EXPECT_EQ(error_of("tcp://:80"), "init method 'tcp://:80': expected a host as in tcp://node7:29500, got ''");
  EXPECT_EQ(error_of("tcp://a/b:80"), "init method 'tcp://a/b:80': expected a host as in tcp://node7:29500, got 'a/b'");
  for (const char* port : {"", "0", "65536", "80x", "+80", "-1", " 80"}) {
    EXPECT_EQ(error_of(std::string("tcp://a:") + port),
              std::string("init method 'tcp://a:") + port +
                  "': expected a port of 1 to 65535 as in tcp://node7:29500, got '" + port + "'");
  }
  EXPECT_EQ(error_of("tcp://a"),
            "init method 'tcp://a': expected a port of 1 to 65535 as in tcp://node7:29500, got ''");
  EXPECT_EQ(error_of("file://"), "init method 'file://': expected a folder, as in file:///shared/folder");
}

}  // namespace
}  // namespace tandem::test
