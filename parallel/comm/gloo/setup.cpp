#include <tandem/parallel/comm/gloo/setup.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <tandem/core/check.h>
#include <tandem/parallel/comm/gloo/backend_over_gloo.h>
#include <tandem/parallel/comm/gloo/listen_address.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

using Clock = std::chrono::steady_clock;

namespace {

// What both sides of a connection must agree in.
constexpr std::uint64_t kWireVersion = 1;
// In which the reason of a broken store comes by the alarm.
constexpr std::chrono::milliseconds kExplanationTime(700);

using Proof = std::array<unsigned char, 32>;

// Only ranks of this attempt know `secret`; that of `from` to `to` is not that of `to` to `from`.
Proof prove(const std::string& secret, int from, int to) {
  const std::string text = fmt::format("tandem gloo {} to {}", from, to);
  Proof proof{};
  unsigned int length = 0;
  const bool done =
      ::HMAC(::EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(), proof.data(), &length) != nullptr;
  check<IoError>(done, "OpenSSL has no HMAC-SHA256: its installation is broken");
  return proof;
}

class Setup {
 public:
  Setup(const GlooOptions& options, std::shared_ptr<gloo::transport::Device> device, Clock::time_point deadline,
        bool is_first)
      : options_(options), device_(std::move(device)), deadline_(deadline), is_first_(is_first) {}

  std::unique_ptr<GlooWire> run() {
    try {
      if (is_first_) {
        claim_rank();
      }
      wait_for_all();
      for (int attempt = 0;; ++attempt) {
        std::unique_ptr<GlooWire> wire;
        std::string reason = connect(attempt, wire);
        if (options_.alarm && options_.alarm->cause()) {
          throw CommError(*options_.alarm->cause());
        }
        reason = agree(attempt, reason);
        if (reason.empty()) {
          erase(key("here", options_.rank));
          if (is_first_) {
            erase(key("claim", options_.rank));
          }
          return wire;
        }
        if (Clock::now() >= deadline_) {
          fail_here("could not connect in time, after {} attempts: {}", attempt + 1, reason);
        }
      }
    } catch (const StoreError& error) {
      if (const auto cause = options_.alarm && error.kind() != StoreError::Kind::timeout
                                 ? options_.alarm->wait_for(kExplanationTime)
                                 : std::nullopt) {
        throw CommError(*cause);
      }
      fail_here("the store: {}", error.what());
    }
  }

 private:
  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    throw CommError(
        fmt::format("process group '{}': rank {} of {}: {}", options_.prefix, options_.rank, options_.size, text),
        {.fault = CommFault::init, .rank = options_.rank});
  }

  std::chrono::milliseconds left() const {
    return std::max(std::chrono::milliseconds(1),
                    std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()));
  }
  std::string key(const char* name, int number) const { return fmt::format("{}/{}/{}", options_.prefix, name, number); }

  // Stays when claims are erased.
  std::string made() const { return options_.prefix + "/made"; }
  // All have agreed: the deadline of the set-up counts no more.
  void erase(const std::string& key) const { options_.store->erase(key, options_.greeting_timeout); }

  void claim_rank() const {
    if (options_.store->add(key("claim", options_.rank), 1, left()) != 1 || options_.store->try_get(made(), left())) {
      fail_here(
          "another process has this rank already. Give each process a RANK of its own, and each start of the job "
          "a fresh store or prefix");
    }
  }

  void wait_for_all() const {
    options_.store->set(key("here", options_.rank), "", left());
    std::vector<std::string> keys;
    for (int r = 0; r < options_.size; ++r) {
      keys.push_back(key("here", r));
    }
    try {
      options_.store->wait(keys, left());
    } catch (const StoreError& error) {
      if (error.kind() != StoreError::Kind::timeout) {
        throw;
      }
      std::vector<int> missing;
      for (int r = 0; r < options_.size; ++r) {
        if (!options_.store->try_get(keys[static_cast<std::size_t>(r)])) {
          missing.push_back(r);
        }
      }
      fail_here("{} not come in time. Start as many processes as the job has ranks, with the same store",
                missing.size() == 1 ? fmt::format("rank {} has", missing.front())
                                    : fmt::format("ranks {} have", fmt::join(missing, ", ")));
    }
  }

  // Empty, or why it failed.
  std::string connect(int attempt, std::unique_ptr<GlooWire>& wire) {
    const auto now = Clock::now();
    const auto limit =
        std::max(now + std::chrono::milliseconds(1), std::min(deadline_, now + options_.greeting_timeout));
    const std::string prefix = key("attempt", attempt) + "/";
    try {
      if (options_.rank == 0) {
        options_.store->set(prefix + "secret", JobToken::generate().hex(), left());
      }
      const std::string secret = options_.store->get(prefix + "secret", left());
      const auto mesh = std::make_shared<GlooMesh>(device_, options_.rank, options_.size);
      {
        const auto ends =
            options_.alarm ? options_.alarm->listen([&](const CommError&) { mesh->close(); }) : Alarm::Subscription();
        mesh->connect(options_.store, prefix, std::chrono::ceil<std::chrono::milliseconds>(limit - now), addresses_);
      }
      wire = std::make_unique<GlooWire>(mesh, options_.alarm);
      return greet(*wire, secret, limit);
    } catch (const StoreError& error) {
      if (error.kind() != StoreError::Kind::timeout) {
        throw;
      }
      return error.what();
    } catch (const std::exception& error) {  // Gloo's
      return error.what();
    }
  }

  // A stranger who connected first sits where the peer should be.
  std::string greet(GlooWire& wire, const std::string& secret, Clock::time_point limit) const {
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer != options_.rank) {
        const Proof proof = prove(secret, options_.rank, peer);
        wire.try_post(peer, {.kind = GlooMail::Kind::greeting, .number = kWireVersion}, proof.data(), proof.size(),
                      limit);
      }
    }
    for (int peer = 0; peer < options_.size; ++peer) {
      if (peer == options_.rank) {
        continue;
      }
      const GlooMail* mail = wire.mail_until(peer, limit);
      const Proof proof = prove(secret, peer, options_.rank);
      if (mail == nullptr || mail->kind != GlooMail::Kind::greeting || mail->number != kWireVersion ||
          mail->payload != proof.size() || std::memcmp(payload_of(*mail), proof.data(), proof.size()) != 0) {
        return fmt::format("what connected in the place of rank {} is not that rank", peer);
      }
      wire.take(peer);
    }
    return {};
  }

  // All go on, or all try again. What was told for this attempt is needed no more then: nobody is still connecting.
  std::string agree(int attempt, const std::string& reason) {
    const std::string prefix = key("attempt", attempt);
    const std::string own = fmt::format("{}/result/{}", prefix, options_.rank);
    Store& store = *options_.store;
    store.set(own, reason, left() + options_.greeting_timeout);
    const std::string agreed = prefix + "/agreed";
    if (options_.rank == 0) {
      std::string all = reason;
      for (int r = 1; r < options_.size; ++r) {
        const std::string theirs =
            store.get(fmt::format("{}/result/{}", prefix, r), left() + options_.greeting_timeout);
        all = all.empty() ? theirs : all;
      }
      if (all.empty() && is_first_) {
        store.set(made(), "", left());
      }
      store.set(agreed, all, left());
    }
    std::string all = store.get(agreed, left() + 2 * options_.greeting_timeout);
    erase(own);
    for (const std::string& address : std::exchange(addresses_, {})) {
      erase(address);
    }
    const std::string readers = prefix + "/readers";
    if (store.add(readers, 1, options_.greeting_timeout) == options_.size) {
      for (const std::string& shared : {agreed, prefix + "/secret", readers}) {
        erase(shared);
      }
    }
    return all;
  }

  const GlooOptions& options_;
  std::shared_ptr<gloo::transport::Device> device_;
  Clock::time_point deadline_;
  bool is_first_;
  std::vector<std::string> addresses_;  // keys that this attempt's connections have set
};

std::shared_ptr<gloo::transport::Device> device_at(const std::string& address) {
  try {
    return gloo_device(address);
  } catch (const std::exception& error) {
    fail<ConfigError>("gloo_backend: cannot listen at '{}': {}", address, error.what());
  }
}

}  // namespace

std::unique_ptr<GlooWire> gloo_wire(const GlooOptions& options, const std::shared_ptr<gloo::transport::Device>& device,
                                    Clock::time_point deadline, bool is_first) {
  return Setup(options, device, deadline, is_first).run();
}

bool has_gloo() noexcept { return true; }

std::unique_ptr<Backend> gloo_backend(GlooOptions options) {
  check<ConfigError>(options.store != nullptr, "gloo_backend: there is no store");
  check<ConfigError>(options.rank >= 0 && options.rank < options.size,
                     "gloo_backend: rank {} of {} ranks; expected one from 0 to {}", options.rank, options.size,
                     options.size - 1);
  for (const auto timeout : {options.setup_timeout, options.greeting_timeout}) {
    check<ConfigError>(timeout.count() > 0 && timeout < kMaxStoreTimeout / 4,
                       "gloo_backend: a timeout of {} ms; expected more than 0, and no more than some hours",
                       timeout.count());
  }
  const SigpipeBlock no_signals;
  const auto now = Clock::now();
  const auto deadline = now + options.setup_timeout;
  options.address = listen_address(options);
  const std::shared_ptr<gloo::transport::Device> device = device_at(options.address);
  std::unique_ptr<GlooWire> wire = gloo_wire(options, device, deadline, true);
  auto backend = std::make_unique<GlooBackend>(std::move(options), device, std::move(wire));
  backend->share_memory({now, deadline});
  return backend;
}

}  // namespace tandem::inline v0::parallel
