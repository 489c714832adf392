#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <asio/ssl/context.hpp>

#include <tandem/parallel/rendezvous/job_token.h>

// Internal: how two processes of a job know each other. First, in the clear, the client shows that it has the token: so
// a stranger costs the server no TLS. Then TLS 1.3 with a key made from the token, which both sides prove to have.

namespace tandem::inline v0::parallel {

/// What a client sends first: a magic number, 16 random bytes, and their HMAC.
inline constexpr std::size_t kGreetingBytes = 8 + 16 + 32;
/// What the server answers to one that it takes.
inline constexpr char kGreetingAnswer = 'T';

/// Whatever is made after this, static or not, may use TLS until it is gone: OpenSSL ends by itself when the program
/// does, before what was made earlier.
void load_tls() noexcept;

/// Keys and settings of one side of a job's connections. Without a token the keys are public: the protocol is the same,
/// and keeps accidents out, nobody else.
class TlsContext {
 public:
  enum class Side : std::uint8_t { server, client };

  TlsContext(Side side, const std::optional<JobToken>& token);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext();

  /// A new greeting. Throws IoError where there are no random numbers.
  std::string greeting() const;
  /// Whether a client with our token made these kGreetingBytes.
  bool is_ours(std::string_view greeting) const;

  asio::ssl::context& context() noexcept { return context_; }

  using Key = std::array<unsigned char, 32>;

 private:
  Key tls_key_;
  Key greeting_key_;
  asio::ssl::context context_;
};

}  // namespace tandem::inline v0::parallel
