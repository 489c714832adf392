#include <tandem/parallel/rendezvous/tls.h>

#include <cstring>
#include <memory>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>

#include <tandem/core/check.h>

namespace tandem::inline v0::parallel {

namespace {

constexpr std::string_view kMagic{"TANDEM\0\1", 8};
constexpr std::size_t kSigned = kGreetingBytes - 32;
constexpr unsigned char kSuite[2] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256, whose hash fits a 32-byte key
constexpr const char* kSuiteName = "TLS_AES_128_GCM_SHA256";
constexpr std::string_view kIdentity = "tandem-job";

JobToken derive(const std::optional<JobToken>& token, std::string_view purpose) {
  return (token ? *token : JobToken::from_hex(std::string(2 * JobToken::kBytes, '0'))).derived(purpose);
}

int key_slot() {
  static const int slot = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return slot;
}

// Builds a session as if an earlier one existed, with our key as its secret: TLS 1.3 represents a pre-shared key this
// way.
SSL_SESSION* session_of(SSL* ssl) {
  const auto& key = static_cast<const JobToken*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), key_slot()))->bytes();
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
  return !ours || *session != nullptr ? 1 : 0;  // 0, without memory, is an internal error to the client
}

int use_session(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* length,
                SSL_SESSION** session) {
  *session = nullptr;
  if (digest == nullptr || EVP_MD_get_type(digest) == NID_sha256) {
    *session = session_of(ssl);
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *length = kIdentity.size();
    return *session != nullptr ? 1 : 0;
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
    // Verify certificates but trust no authority, so that only our key can succeed. Without verification a server with
    // any certificate would be accepted.
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_psk_use_session_callback(ssl, use_session);
  }
}

std::string TlsContext::greeting() const {
  std::string text(kMagic);
  text.resize(kSigned);
  check<IoError>(RAND_bytes(reinterpret_cast<unsigned char*>(&text[kMagic.size()]), 16) == 1,
                 "OpenSSL has no random numbers");
  const JobToken mac = greeting_key_.derived(text);
  return text.append(reinterpret_cast<const char*>(mac.bytes().data()), JobToken::kBytes);
}

bool TlsContext::is_ours(std::string_view greeting) const {
  if (greeting.size() != kGreetingBytes || !greeting.starts_with(kMagic)) {
    return false;
  }
  const JobToken mac = greeting_key_.derived(greeting.substr(0, kSigned));
  return CRYPTO_memcmp(mac.bytes().data(), greeting.data() + kSigned, JobToken::kBytes) == 0;
}

}  // namespace tandem::inline v0::parallel
