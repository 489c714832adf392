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

#include <sys/socket.h>

#include <tandem/core/check.h>
#include <tandem/core/system_limits.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/rendezvous/job_token.h>
#include <tandem/parallel/rendezvous/port_owner.h>
#include <tandem/parallel/rendezvous/store_server.h>
#include <tandem/parallel/rendezvous/text.h>

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
  check<ConfigError>(
      process_environment("TANDEM_INSECURE_RENDEZVOUS") == "1",
      "rendezvous at {}: without a token anybody on that network could join the job [TDM-E609]. Make one and give "
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
  try {
    acceptor.assign(endpoint.protocol(), open_socket(endpoint.protocol()));
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen();
    acceptor.non_blocking(true);
  } catch (const asio::system_error& error) {
    const asio::error_code code = error.code();
    std::string advice;
    if (code == asio::error::address_in_use) {
      advice = ": " + port_owner(endpoint) + " listens there; choose another port, or 0 for one that is free";
    } else if (code.value() == EADDRNOTAVAIL) {
      advice = ": it is no address of this machine";
    }
    fail<IoError>("rendezvous server: cannot listen at {} [TDM-E608]: {}{}", to_text(endpoint), code.message(), advice);
  }
  return acceptor;
}

int open_socket(const tcp& protocol) {
  const int descriptor = ::socket(protocol.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) {
    check<IoError>(errno != EMFILE && errno != ENFILE && errno != ENOMEM, "no socket for the rendezvous: {}",
                   core::system_message(errno));
    throw asio::system_error(asio::error_code(errno, asio::system_category()), "socket");
  }
  return descriptor;
}

std::string to_text(const tcp::endpoint& endpoint) { return at_port(endpoint.address().to_string(), endpoint.port()); }

asio::awaitable<void> pause_for(std::chrono::milliseconds time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
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

asio::awaitable<asio::error_code> Channel::connect(tcp::endpoint server) {
  asio::error_code error;
  co_await socket_.async_connect(server, asio::redirect_error(asio::use_awaitable, error));
  const tcp::endpoint here = error ? tcp::endpoint() : socket_.local_endpoint(error);
  const tcp::endpoint there = error ? tcp::endpoint() : socket_.remote_endpoint(error);  // fails if the server has gone
  if (!error && here == there) {
    error = asio::error::connection_refused;  // nobody listens: the system chose that very port for our own side
  }
  co_return error;
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

void Channel::send(std::string bytes, std::shared_ptr<const std::string> tail) {
  unsent_ += messages_.emplace_back(std::move(bytes), std::move(tail)).size();
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
    unsent_ -= message.size();
    if (error) {
      close();
    }
  }
  writing_ = false;
}

asio::awaitable<void> Channel::flush() {
  while (writing_ && is_open()) {
    co_await pause_for(std::chrono::milliseconds(1));
  }
}

void Channel::close() {
  asio::error_code ignored;
  disarm();
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

}  // namespace tandem::inline v0::parallel
