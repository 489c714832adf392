#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <tandem/autograd/parameter_store.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

/// Internal: copies of a module's parameters or buffers on another device, kept from forward to forward. Copies from
/// one ParameterStore have the store's layout, so that all changes by an optimiser are copied in one piece.
class StandIns {
 public:
  explicit StandIns(Device device) : device_(device) {}

  /// Makes the stand-ins share memory with `slots`, which the device can access.
  void share(const std::vector<Tensor>& slots);
  /// Makes the stand-ins equal to `slots`, copying those that have changed on either side. A step that is being
  /// recorded copies all, because they may change between its replays. Returns the number of bytes copied.
  std::int64_t copy(const std::vector<Tensor>& slots);

  const Tensor& operator[](std::size_t i) const { return all_[i].value; }

 private:
  struct StandIn {
    Tensor value;
    ParameterStore::Place place;  // place of the slot
    tandem::detail::View source;  // the slot's elements when they were copied
    std::uint32_t source_version = 0;
    std::uint32_t own_version = 0;

    bool is_of(const tandem::detail::View& slot) const;
    bool is_equal_to(const tandem::detail::View& slot) const;
    void note(const tandem::detail::View& slot);
  };

  void make_place(StandIn& there, const Tensor& slot);
  const tandem::detail::View& block_of(const std::shared_ptr<ParameterStore>& store);
  void copy_stretch(std::span<const std::size_t> members, const std::vector<Tensor>& slots);

  Device device_;
  std::vector<StandIn> all_;
  std::map<std::shared_ptr<ParameterStore>, tandem::detail::View> blocks_;  // values in the layout of a store
};

}  // namespace tandem::inline v0::parallel
