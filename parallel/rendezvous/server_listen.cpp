#include <tandem/parallel/rendezvous/server_listen.h>

#include <cerrno>

#include <sys/socket.h>

#include <tandem/core/check.h>
#include <tandem/parallel/rendezvous/channel.h>
#include <tandem/parallel/rendezvous/exposure.h>

namespace tandem::inline v0::parallel {

namespace {

using asio::ip::tcp;

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

}  // namespace tandem::inline v0::parallel
