#include <tandem/parallel/comm/gloo/mesh.h>
#include <tandem/parallel/comm/short_slice.h>

#include <ctime>
#include <utility>
#include <vector>

#include <gloo/rendezvous/store.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/attr.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

namespace tandem::inline v0::parallel {

namespace {

using Milliseconds = std::chrono::milliseconds;

// What Gloo asks of a store.
class StoreForGloo final : public gloo::rendezvous::Store {
 public:
  StoreForGloo(std::shared_ptr<parallel::Store> store, std::string prefix, Milliseconds timeout,
               std::vector<std::string>& keys)
      : store_(std::move(store)), prefix_(std::move(prefix)), timeout_(timeout), keys_(keys) {}

  void set(const std::string& key, const std::vector<char>& value) override {
    keys_.push_back(prefix_ + key);
    store_->set(keys_.back(), std::string_view(value.data(), value.size()), timeout_);
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_->get(prefix_ + key, timeout_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override {
    std::vector<std::string> prefixed;
    for (const std::string& key : keys) {
      prefixed.push_back(prefix_ + key);
    }
    store_->wait(prefixed, timeout);
  }

 private:
  std::shared_ptr<parallel::Store> store_;
  std::string prefix_;
  Milliseconds timeout_;
  std::vector<std::string>& keys_;
};

// Calls `made` once there is something that close() could close.
template <class Connections, class Made>
void connect_all(Connections& connections, const std::shared_ptr<gloo::rendezvous::Store>& store, const Made& made) {
  if constexpr (requires { connections.createAndConnectAllPairs(store); }) {
    connections.createAndConnectAllPairs(store);
    made();
  } else {  // before 2024: one listening socket for each pair
    std::vector<char> own;
    std::size_t bytes = 0;  // of one address
    for (int peer = 0; peer < connections.size; ++peer) {
      if (peer != connections.rank) {
        const std::vector<char> address = connections.createPair(peer)->address().bytes();
        bytes = address.size();
        own.insert(own.end(), address.begin(), address.end());
      }
    }
    made();
    store->set(std::to_string(connections.rank), own);
    for (int peer = 0; peer < connections.size; ++peer) {
      if (peer != connections.rank) {
        const std::vector<char> theirs = store->get(std::to_string(peer));
        const int place = connections.rank - (connections.rank > peer ? 1 : 0);
        const auto begin = theirs.begin() + place * static_cast<std::ptrdiff_t>(bytes);
        connections.getPair(peer)->connect({begin, begin + static_cast<std::ptrdiff_t>(bytes)});
      }
    }
  }
}

sigset_t sigpipe() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  return set;
}

}  // namespace

SigpipeBlock::SigpipeBlock() noexcept {
  const sigset_t set = sigpipe();
  sigset_t before;
  changed_ = ::pthread_sigmask(SIG_BLOCK, &set, &before) == 0 && ::sigismember(&before, SIGPIPE) == 0;
}

SigpipeBlock::~SigpipeBlock() {
  if (!changed_) {
    return;
  }
  const sigset_t set = sigpipe();
  const timespec now{};
  while (::sigtimedwait(&set, nullptr, &now) == SIGPIPE) {  // it must not come afterwards
  }
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

SignalBlock::SignalBlock() noexcept {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalBlock::~SignalBlock() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& address) {
  const SignalBlock for_its_thread;
  const ShortSlice also_for_it;
  gloo::transport::tcp::attr attributes;
  attributes.hostname = address;
  return gloo::transport::tcp::CreateDevice(attributes);
}

GlooMesh::GlooMesh(std::shared_ptr<gloo::transport::Device> device, int own_rank, int ranks)
    : gloo::Context(own_rank, ranks) {
  transportContext_ = device->createContext(own_rank, ranks);
  device_ = std::move(device);
}

void GlooMesh::connect(const std::shared_ptr<Store>& store, const std::string& prefix, Milliseconds timeout,
                       std::vector<std::string>& keys) {
  transportContext_->setTimeout(timeout);
  connect_all(*transportContext_, std::make_shared<StoreForGloo>(store, prefix, timeout, keys), [&] {
    has_pairs_ = true;
    if (closed_) {
      throw std::runtime_error("closed while it was connecting");
    }
  });
}

// Gloo's closeConnections() would leave those who wait on this side to their deadlines; a buffer for which nothing came
// in time ends them.
void GlooMesh::close() noexcept {
  closed_ = true;
  if (!has_pairs_) {
    return;
  }
  try {
    char nothing = 0;
    transportContext_->createUnboundBuffer(&nothing, 1)->waitRecv(Milliseconds(1));
  } catch (const std::exception&) {  // says so
  }
}

}  // namespace tandem::inline v0::parallel
