#include <tandem/parallel/rendezvous/tls.h>

#include <cstring>
#include <memory>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::parallel {

namespace {

using Key = TlsContext::Key;

constexpr std::string_view kMagic{"TANDEM\0\1", 8};
constexpr std::size_t kSigned = kGreetingBytes - 32;
constexpr unsigned char kSuite[2] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256: a key like ours goes with SHA-256
constexpr const char* kSuiteName = "TLS_AES_128_GCM_SHA256";
constexpr std::string_view kIdentity = "tandem-job";

Key hmac(std::span<const std::uint8_t> key, std::string_view text) {
  Key out{};
  unsigned length = out.size();
  const bool done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                         reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data(), &length);
  check<IoError>(done, "OpenSSL has no HMAC-SHA256: its installation is broken");
  return out;
}

Key derive(const std::optional<JobToken>& token, std::string_view purpose) {
  static constexpr std::array<std::uint8_t, JobToken::kBytes> kNoToken{};
  return hmac(token ? std::span(token->bytes()) : std::span(kNoToken), purpose);
}

int key_slot() {
  static const int slot = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return slot;
}

// A session as if there had been one before, with our key as its secret: that is what a pre-shared key is in TLS 1.3.
SSL_SESSION* session_of(SSL* ssl) {
  const auto& key = *static_cast<const Key*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), key_slot()));
  SSL_SESSION* session = SSL_SESSION_new();
  if (session != nullptr && (SSL_SESSION_set1_master_key(session, key.data(), key.size()) != 1 ||
                             SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kSuite)) != 1 ||
                             SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1)) {
    SSL_SESSION_free(session);
    session = nullptr;
  }
  return session;
}

int find_session(SSL* ssl, const unsigned char* identity, std::size_t length, SSL_SESSION** session) {
  const bool ours = length == kIdentity.size() && std::memcmp(identity, kIdentity.data(), length) == 0;
  *session = ours ? session_of(ssl) : nullptr;
  return 1;
}

int use_session(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* length,
                SSL_SESSION** session) {
  *session = nullptr;
  if (digest == nullptr || EVP_MD_get_type(digest) == NID_sha256) {
    *session = session_of(ssl);
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *length = kIdentity.size();
  }
  return 1;
}

}  // namespace

void load_tls() noexcept { ::OPENSSL_init_ssl(0, nullptr); }

TlsContext::TlsContext(Side side, const std::optional<JobToken>& token)
    : tls_key_(derive(token, "tandem rendezvous 1: TLS")),
      greeting_key_(derive(token, "tandem rendezvous 1: greeting")),
      context_(side == Side::server ? asio::ssl::context::tls_server : asio::ssl::context::tls_client) {
  SSL_CTX* ssl = context_.native_handle();
  const bool set = SSL_CTX_set_ex_data(ssl, key_slot(), &tls_key_) == 1 &&
                   SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_ciphersuites(ssl, kSuiteName) == 1 && SSL_CTX_set_num_tickets(ssl, 0) == 1;
  check<IoError>(set, "OpenSSL has no TLS 1.3 with {}: its installation or its configuration forbids it", kSuiteName);
  SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET);
  SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);
  if (side == Side::server) {
    SSL_CTX_set_psk_find_session_callback(ssl, find_session);
  } else {
    // Certificates are looked at, and no authority is trusted: only our key can succeed. Without this a server with any
    // certificate would be taken.
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_psk_use_session_callback(ssl, use_session);
  }
}

TlsContext::~TlsContext() {
  OPENSSL_cleanse(tls_key_.data(), tls_key_.size());
  OPENSSL_cleanse(greeting_key_.data(), greeting_key_.size());
}

std::string TlsContext::greeting() const {
  std::string text(kMagic);
  text.resize(kSigned);
  check<IoError>(RAND_bytes(reinterpret_cast<unsigned char*>(&text[kMagic.size()]), 16) == 1,
                 "OpenSSL has no random numbers");
  const Key mac = hmac(greeting_key_, text);
  return text.append(reinterpret_cast<const char*>(mac.data()), mac.size());
}

bool TlsContext::is_ours(std::string_view greeting) const {
  if (greeting.size() != kGreetingBytes || !greeting.starts_with(kMagic)) {
    return false;
  }
  const Key mac = hmac(greeting_key_, greeting.substr(0, kSigned));
  return CRYPTO_memcmp(mac.data(), greeting.data() + kSigned, mac.size()) == 0;
}

}  // namespace tandem::inline v0::parallel
