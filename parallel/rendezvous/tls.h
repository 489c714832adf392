#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <asio/ssl/context.hpp>

#include <tandem/parallel/rendezvous/job_token.h>

// Internal: mutual authentication of two processes of a job. The client first proves in the clear that it has the
// token, so that a stranger costs the server no TLS handshake. TLS 1.3 follows with a key made from the token, which
// both sides prove to have.

namespace tandem::inline v0::parallel {

/// The size of the client's greeting: a magic number, 16 random bytes, and their HMAC.
inline constexpr std::size_t kGreetingBytes = 8 + 16 + 32;
/// The server's answer to a greeting that it accepts.
inline constexpr char kGreetingAnswer = 'T';

/// Loads OpenSSL. Objects created after this call, static or not, may use TLS until they are destroyed. Without the
/// call, OpenSSL's exit handler could run before the destructors of earlier objects.
void load_tls() noexcept;

/// Keys and settings of one side of a job's connections. Without a token the keys are public: the protocol stays the
/// same, but only protects against accidents.
class TlsContext {
 public:
  enum class Side : std::uint8_t { server, client };

  TlsContext(Side side, const std::optional<JobToken>& token);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  /// A new greeting. Throws IoError if the system has no random numbers.
  std::string greeting() const;
  /// Whether a client with our token made this greeting of kGreetingBytes.
  bool is_ours(std::string_view greeting) const;

  asio::ssl::context& context() noexcept { return context_; }

 private:
  JobToken tls_key_;
  JobToken greeting_key_;
  asio::ssl::context context_;
};

}  // namespace tandem::inline v0::parallel
