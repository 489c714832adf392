#include <cstdlib>
#include <fstream>
#include <future>
#include <thread>

#include <fmt/format.h>
#include <sys/resource.h>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/use_awaitable.hpp>

#include <tandem/core/warning.h>
#include <tandem/parallel/rendezvous/channel.h>

#include "parallel/rendezvous/raw_socket.h"
#include "parallel/rendezvous/stores.h"
#include "support/message.h"

// Strangers to the job: at the server's port, and at the address where a client looks for its server.

namespace tandem::test {
namespace {

using parallel::JobToken;
using parallel::StoreServer;
using parallel::TcpStore;

/// A server with a rank, whose work must not be disturbed.
class Strangers : public testing::Test {
 protected:
  void SetUp() override { store_.set("result", "7"); }
  void TearDown() override {
    EXPECT_EQ(store_.get("result"), "7");
    EXPECT_EQ(store_.add("n", 1), 1);
    EXPECT_EQ(server_.verdict(), "");
  }

  JobToken token_ = JobToken::generate();
  StoreServer server_{{.token = token_, .handshake_limit = 1s}};
  TcpStore store_{client_of(server_, token_, 0)};
};

std::string greeting_with(const std::optional<JobToken>& token) {
  return parallel::TlsContext(parallel::TlsContext::Side::client, token).greeting();
}

TEST_F(Strangers, WithAnotherTokenOrNoneAreTurnedAway) {
  const std::size_t before = server_.refused();
  const std::string error = fmt::format(
      "the rendezvous server at 127.0.0.1:{} turned us away: it was started with another TANDEM_JOB_TOKEN "
      "than ours, or it is another program",
      server_.port());
  EXPECT_EQ(message_of<StoreError>([&] { TcpStore store(client_of(server_, JobToken::generate())); }), error);
  EXPECT_EQ(message_of<StoreError>([&] { TcpStore store(client_of(server_)); }),
            fmt::format("the rendezvous server at 127.0.0.1:{} turned us away: it was started with a TANDEM_JOB_TOKEN, "
                        "or it is another program",
                        server_.port()));
  // Each client tried three times: a server that ends also refuses once, so one refusal proves nothing.
  EXPECT_TRUE(eventually([&] { return server_.refused() == before + 6; }));
}

TEST_F(Strangers, GarbageIsNotAnswered) {
  const std::size_t before = server_.refused();
  std::string zeros(200, '\0');
  std::string length = zeros;
  length[0] = '\x80';  // 2^63 as the first number
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n") + zeros, zeros, length,
                                   std::string(100'000, '\xff'), std::string("TANDEM\0\1", 8) + zeros,
                                   std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + zeros}) {
    RawSocket stranger(server_.port());
    stranger.send(bytes);
    EXPECT_EQ(stranger.read_all(), "");
    EXPECT_TRUE(stranger.closed());
  }
  EXPECT_TRUE(eventually([&] { return server_.refused() == before + 6; }));
}

TEST_F(Strangers, HalfAGreetingIsWaitedForNoLongerThanTheLimit) {
  const std::string greeting = greeting_with(token_);
  const double took = seconds([&] {
    RawSocket stranger(server_.port());
    for (const char byte : greeting.substr(0, 20)) {  // one byte now and then
      stranger.send({&byte, 1});
      std::this_thread::sleep_for(10ms);
    }
    EXPECT_EQ(stranger.read_all(), "");
    EXPECT_TRUE(stranger.closed());
  });
  EXPECT_GE(took, 0.98);
  EXPECT_LT(took, 5.0);
}

TEST_F(Strangers, ARecordedGreetingIsOfNoUse) {
  const std::string greeting = greeting_with(token_);
  RawSocket first(server_.port());
  first.send(greeting);
  EXPECT_EQ(first.read_all(),
            "T");  // then TLS, for which the client has no key: the server closes the connection at the limit
  EXPECT_TRUE(first.closed());
  RawSocket again(server_.port());
  again.send(greeting);
  EXPECT_EQ(again.read_all(), "");
  EXPECT_TRUE(again.closed());
}

TEST_F(Strangers, GarbageAfterAGreetingEndsInTheHandshake) {
  RawSocket stranger(server_.port());
  stranger.send(greeting_with(token_) + std::string(100, 'x'));
  EXPECT_EQ(stranger.read_all().substr(0, 1), "T");
  EXPECT_TRUE(stranger.closed());
}

TEST_F(Strangers, BadFramesEndTheConnectionThatSentThem) {
  const std::string hello = parallel::encode(parallel::encode_hello({-1, 1, 1000, "h"}));
  std::string huge = parallel::encode({parallel::FrameKind::set, 1, "k", "v"});
  huge.replace(8, 4, "\x80\0\0\0", 4);  // 2^31
  for (const std::string& bytes : {huge, hello, std::string(1000, '\xee'), std::string(16, '\0'),
                                   parallel::encode({parallel::FrameKind::value, 1, {}, "v"})}) {
    asio::io_context io;
    const auto options = client_of(server_, token_);
    parallel::TlsContext tls(parallel::TlsContext::Side::client, token_);
    bool ended = false;
    asio::co_spawn(
        io,
        [&]() -> asio::awaitable<void> {
          const auto channel = co_await connect_to_server(options, tls);
          channel->arm(parallel::Channel::Clock::now() + 5s);
          channel->send(bytes);
          try {
            co_await channel->read(5s);
          } catch (const asio::system_error&) {
            ended = !channel->expired();
          }
          channel->close();
        },
        asio::detached);
    io.run();
    EXPECT_TRUE(ended);
  }
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

TEST_F(Strangers, AThousandSilentOnesStopNobodyAndTakeLittleMemory) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const rlimit before = files;
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
  ::setrlimit(RLIMIT_NOFILE, &files);
  ASSERT_GE(files.rlim_cur, 2200U) << "this test needs 2200 open files: ulimit -Hn";
  [[maybe_unused]] const std::size_t memory = resident_bytes();
  {
    std::vector<RawSocket> silent;
    for (int i = 0; i < 1000; ++i) {
      silent.emplace_back(server_.port());
      ASSERT_TRUE(silent.back().connected());
    }
    const double took = seconds([&] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(store_.get("result"), "7");
        TcpStore late(client_of(server_, token_, 1));
        EXPECT_EQ(late.get("result"), "7");
      }
    });
    EXPECT_LT(took, 10.0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers keep freed memory
    EXPECT_LT(resident_bytes(), memory + (std::size_t{16} << 20U));
#endif
    EXPECT_TRUE(eventually([&] { return server_.refused() >= 1000; }));  // or more: clients that were too slow
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(Strangers, ThatComeAndGoStopNobody) {
  std::jthread knocking([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      RawSocket stranger(server_.port());
      stranger.send("x");
    }
  });
  for (int i = 0; i < 20; ++i) {
    TcpStore late(client_of(server_, token_, 1));
    EXPECT_EQ(late.get("result"), "7");
  }
}

TEST(Impostors, AreFoundOut) {
  const JobToken token = JobToken::generate();
  const auto error_at = [&](std::string_view answer) {
    const Impostor impostor;
    std::future<std::string> seen = std::async(std::launch::async, [&] { return impostor.answer(answer); });
    std::string text = message_of<StoreError>(
        [&] { TcpStore store({.port = impostor.port(), .token = token, .connect_timeout = 2s}); });
    const std::string greeting = seen.get();
    EXPECT_EQ(greeting.find(token.hex()), std::string::npos);
    EXPECT_EQ(greeting.find(std::string(token.bytes().begin(), token.bytes().end())), std::string::npos);
    const std::string port = ":" + std::to_string(impostor.port());
    text.replace(text.find(port), port.size(), ":PORT");
    return text;
  };
  EXPECT_EQ(error_at("SSH-2.0-OpenSSH_9.2\r\n"),
            "what listens at 127.0.0.1:PORT is no rendezvous server of tandem: is the port right?");
  EXPECT_THAT(error_at("Tno TLS at all, only text"),
              testing::StartsWith("what listens at 127.0.0.1:PORT did not prove that it has our TANDEM_JOB_TOKEN: "
                                  "nothing was sent to it ("));
  using namespace std::string_view_literals;
  EXPECT_THAT(error_at("T\x15\x03\x03\0\x02\x02\x50"sv),  // the alert of a TLS that has no memory
              testing::AllOf(testing::StartsWith("what listens at 127.0.0.1:PORT failed before it proved"),
                             testing::EndsWith("Has that process no memory left (ulimit -v)?")));
}

// The impostor answers the greeting and shows a certificate, but does not have the token.
TEST(Impostors, ServersWithoutTheKeyDoNotGetThroughTls) {
  const JobToken token = JobToken::generate();
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  parallel::TlsContext wrong(parallel::TlsContext::Side::server, JobToken::generate());
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        auto socket = co_await acceptor.async_accept(asio::use_awaitable);
        const auto channel = std::make_shared<parallel::Channel>(std::move(socket));
        co_await channel->read_clear(parallel::kGreetingBytes);
        co_await channel->write_clear("T");
        co_await channel->start_tls(wrong, parallel::TlsContext::Side::server);
      },
      asio::detached);
  std::thread thread([&] { io.run(); });
  const auto text = message_of<StoreError>(
      [&] { TcpStore store({.port = acceptor.local_endpoint().port(), .token = token, .connect_timeout = 2s}); });
  EXPECT_NE(text.find("did not prove that it has our TANDEM_JOB_TOKEN"), std::string::npos) << text;
  thread.join();
}

TEST(Exposure, OtherAddressesNeedAToken) {
  ::unsetenv("TANDEM_INSECURE_RENDEZVOUS");
  parallel::check_exposure("127.0.0.1:1", true, false);
  parallel::check_exposure("10.0.0.1:1", false, true);
  const std::string text =
      "rendezvous at 192.0.2.1:29500: without a token anybody on that network could join the job. Make one and give it "
      "to every rank: export TANDEM_JOB_TOKEN=$(openssl rand -hex 32). To do without, on a network where you trust "
      "everybody: export TANDEM_INSECURE_RENDEZVOUS=1";
  EXPECT_EQ(message_of<ConfigError>([] { StoreServer server({.host = "192.0.2.1", .port = 29500}); }), text);
  EXPECT_EQ(message_of<ConfigError>([] { TcpStore store({.host = "192.0.2.1", .port = 29500}); }), text);

  ::setenv("TANDEM_INSECURE_RENDEZVOUS", "1", 1);
  std::string warning;
  set_warning_handler([&](const std::string& said) { warning = said; });
  parallel::check_exposure("192.0.2.1:29500", false, false);
  set_warning_handler({});
  ::unsetenv("TANDEM_INSECURE_RENDEZVOUS");
  EXPECT_EQ(warning,
            "rendezvous at 192.0.2.1:29500 without a token (TANDEM_INSECURE_RENDEZVOUS=1): anybody on that network can "
            "join the job, and read and change what its ranks tell each other");
}

}  // namespace
}  // namespace tandem::test
