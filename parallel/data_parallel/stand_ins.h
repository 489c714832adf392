#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  /// Makes the stand-ins equal to `slots`, copying those that have changed on either side. Returns the number of bytes
  /// copied.
  std::int64_t copy(const std::vector<Tensor>& slots);

  const Tensor& operator[](std::size_t i) const { return all_[i].value; }

 private:
  struct StandIn {
    Tensor value;
    ParameterStore::Place place;                // place of the slot
    core::Ref<tandem::detail::Storage> source;  // storage whose elements were copied
    std::int64_t offset = 0;
    std::uint32_t source_version = 0;
    std::uint32_t own_version = 0;

    bool is_of(const tandem::detail::View& slot) const;
    bool is_equal_to(const tandem::detail::View& slot) const;
    void note(const tandem::detail::View& slot);
  };
  struct Block {
    std::shared_ptr<ParameterStore> store;
    tandem::detail::View values;
  };
  struct Run;

  void make_place(StandIn& there, const Tensor& slot);
  Block& block_of(const std::shared_ptr<ParameterStore>& store);
  std::int64_t copy_run(Run& run, const std::vector<Tensor>& slots);

  Device device_;
  std::vector<StandIn> all_;
  std::vector<Block> blocks_;
};

}  // namespace tandem::inline v0::parallel
