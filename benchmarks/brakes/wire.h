#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <tandem/parallel/comm/backend.h>

namespace bench::brakes {

/// A network: how long a collective of some bytes takes.
struct Wire {
  double latency_us = 0;
  double mbit_s = 0;  // 0: no network
};

/// A backend of ranks that are threads, whose collectives take as long as on a wire: the thread that carries a call
/// sleeps, and the ranks compute meanwhile.
class WireBackend final : public tandem::parallel::Backend {
 public:
  WireBackend(std::unique_ptr<tandem::parallel::Backend> inner, const Wire& wire)
      : Backend(inner->names()), inner_(std::move(inner)), wire_(wire) {}

  std::string_view name() const noexcept override { return "wire"; }
  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::string refusal(const tandem::parallel::Collective& call) const override { return inner_->refusal(call); }
  void exchange(const tandem::parallel::Collective& mine, std::span<tandem::parallel::Collective> all,
                const tandem::parallel::CallTime& time) override {
    inner_->exchange(mine, all, time);
  }
  void run(const tandem::parallel::Collective& call, const tandem::parallel::Buffers& buffers,
           const tandem::parallel::CallTime& time) override {
    inner_->run(call, buffers, time);
    const double bytes = static_cast<double>(buffers.numel) * static_cast<double>(tandem::item_size(call.dtype));
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(wire_.latency_us + 8 * bytes / wire_.mbit_s));
  }
  std::unique_ptr<Backend> split(std::span<const int> members, const tandem::parallel::CallTime& time) override {
    auto part = inner_->split(members, time);
    return part ? std::make_unique<WireBackend>(std::move(part), wire_) : nullptr;
  }
  void abort(const tandem::CommError& cause) noexcept override { inner_->abort(cause); }
  std::optional<tandem::CommError> failure() const override { return inner_->failure(); }

 private:
  std::unique_ptr<Backend> inner_;
  Wire wire_;
};

}  // namespace bench::brakes
