#include <tandem/parallel/rendezvous/channel.h>

#include <array>
#include <cerrno>
#include <utility>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/read.hpp>
#include <asio/redirect_error.hpp>
#include <asio/ssl/error.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

#include <fmt/format.h>
#include <sys/socket.h>

#include <tandem/core/check.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/rendezvous/job_token.h>
#include <tandem/parallel/rendezvous/store_server.h>

namespace tandem::inline v0::parallel {

using asio::ip::tcp;

namespace {

tcp::endpoint endpoint_of(const StoreServerOptions& options) {
  asio::error_code error;
  asio::ip::address address = asio::ip::make_address(options.host, error);
  if (error) {
    asio::io_context context;
    tcp::resolver resolver(context);
    const auto found = resolver.resolve(options.host, "", error);
    check<IoError>(!error && !found.empty(), "rendezvous server: the host '{}' has no address: {}", options.host,
                   error.message());
    address = found.begin()->endpoint().address();
  }
  check<ConfigError>(
      !address.is_unspecified(),
      "rendezvous server: '{}' stands for every address of this machine; name the one by which the other "
      "hosts reach it, or 127.0.0.1",
      options.host);
  return {address, options.port};
}

}  // namespace

void check_exposure(const std::string& address, bool is_loopback, bool has_token) {
  if (is_loopback || has_token) {
    return;
  }
  check<ConfigError>(process_environment("TANDEM_INSECURE_RENDEZVOUS") == "1",
                     "rendezvous at {}: without a token anybody on that network could join the job. Make one and give "
                     "it to every rank: export TANDEM_JOB_TOKEN=$(openssl rand -hex 32). To do without, on a network "
                     "where you trust everybody: export TANDEM_INSECURE_RENDEZVOUS=1",
                     address);
  core::warn("rendezvous at " + address +
             " without a token (TANDEM_INSECURE_RENDEZVOUS=1): anybody on that network "
             "can join the job, and read and change what its ranks tell each other");
}

tcp::acceptor listen_at(asio::io_context& io, const StoreServerOptions& options) {
  const tcp::endpoint endpoint = endpoint_of(options);
  tcp::acceptor acceptor(io);
  check_exposure(to_text(endpoint), endpoint.address().is_loopback(), options.token.has_value());
  asio::error_code error;
  const int descriptor = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor >= 0) {
    acceptor.assign(endpoint.protocol(), descriptor, error);
    acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    acceptor.bind(endpoint, error);
  } else {
    error = asio::error_code(errno, asio::system_category());
  }
  if (!error) {
    acceptor.listen(asio::socket_base::max_listen_connections, error);
  }
  if (!error) {
    acceptor.non_blocking(true, error);
  }
  const char* advice = "";
  if (error == asio::error::address_in_use) {
    advice = ": another program listens there; choose another port, or 0 for one that is free";
  } else if (error.value() == EADDRNOTAVAIL) {
    advice = ": it is no address of this machine";
  }
  check<IoError>(!error, "rendezvous server: cannot listen at {}: {}{}", to_text(endpoint), error.message(), advice);
  return acceptor;
}

tcp::socket open_socket(asio::any_io_executor executor, const tcp& protocol) {
  const int descriptor = ::socket(protocol.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) {
    throw asio::system_error(asio::error_code(errno, asio::system_category()), "socket");
  }
  return {executor, protocol, descriptor};
}

std::string to_text(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", address, endpoint.port())
                                    : fmt::format("{}:{}", address, endpoint.port());
}

bool is_closed(const asio::error_code& error) {
  return error == asio::error::eof || error == asio::ssl::error::stream_truncated ||
         error == asio::error::connection_reset || error == asio::error::broken_pipe ||
         error == asio::error::operation_aborted || error == asio::error::bad_descriptor;
}

Channel::Channel(tcp::socket socket) : socket_(std::move(socket)), deadline_(socket_.get_executor()) {
  // Without this option a small request waits 40 ms for the acknowledgement of the request before.
  asio::error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
}

void Channel::arm(Clock::time_point when) {
  deadline_.expires_at(when);
  deadline_.async_wait([self = shared_from_this(), number = ++armed_](const asio::error_code& error) {
    if (!error && number == self->armed_) {
      self->expired_ = true;
      self->close();
    }
  });
}

void Channel::disarm() {
  ++armed_;
  deadline_.cancel();
}

asio::awaitable<std::string> Channel::read_clear(std::size_t bytes) {
  std::string text(bytes, '\0');
  co_await asio::async_read(socket_, asio::buffer(text), asio::use_awaitable);
  co_return text;
}

asio::awaitable<void> Channel::write_clear(std::string bytes) {
  co_await asio::async_write(socket_, asio::buffer(bytes), asio::use_awaitable);
}

asio::awaitable<void> Channel::start_tls(TlsContext& tls, TlsContext::Side side) {
  tls_.emplace(socket_, tls.context());
  co_await tls_->async_handshake(
      side == TlsContext::Side::server ? asio::ssl::stream_base::server : asio::ssl::stream_base::client,
      asio::use_awaitable);
  if (SSL_session_reused(tls_->native_handle()) != 1) {
    throw asio::system_error(asio::error::access_denied, "the key was not used");
  }
}

asio::awaitable<Frame> Channel::read(std::chrono::milliseconds limit) {
  std::array<std::uint8_t, kFrameHeader> bytes{};
  co_await asio::async_read(*tls_, asio::buffer(bytes), asio::use_awaitable);
  const FrameHeader header = decode_header(bytes);
  if (header.body() == 0) {
    co_return decode_body(header, {});
  }
  arm(Clock::now() + limit);
  std::string body(header.body(), '\0');
  co_await asio::async_read(*tls_, asio::buffer(body), asio::use_awaitable);
  disarm();
  co_return decode_body(header, body);
}

void Channel::send(std::string bytes, StoreTable::Value tail) {
  unsent_ += bytes.size() + (tail ? tail->size() : 0);
  messages_.push_back({std::move(bytes), std::move(tail)});
  if (!writing_) {
    writing_ = true;
    asio::co_spawn(
        socket_.get_executor(), [self = shared_from_this()] { return self->write_messages(); }, asio::detached);
  }
}

asio::awaitable<void> Channel::write_messages() {
  asio::error_code error;
  while (!messages_.empty() && is_open()) {
    const Message message = std::move(messages_.front());
    messages_.pop_front();
    const std::array<asio::const_buffer, 2> buffers{asio::buffer(message.bytes),
                                                    message.tail ? asio::buffer(*message.tail) : asio::const_buffer()};
    co_await asio::async_write(*tls_, buffers, asio::redirect_error(asio::use_awaitable, error));
    unsent_ -= message.bytes.size() + (message.tail ? message.tail->size() : 0);
    if (error) {
      close();
    }
  }
  writing_ = false;
}

asio::awaitable<void> Channel::flush() {
  asio::steady_timer pause(socket_.get_executor());
  while (writing_ && is_open()) {
    pause.expires_after(std::chrono::milliseconds(1));
    co_await pause.async_wait(asio::use_awaitable);
  }
}

void Channel::close() {
  asio::error_code ignored;
  disarm();
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

}  // namespace tandem::inline v0::parallel
