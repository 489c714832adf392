#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/autograd/parameter_store.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::parallel {

/// Internal: what a module's parameters or buffers are on another device, kept from forward to forward. Those of one
/// ParameterStore lie as there, so that all that an optimiser has changed is copied in one piece.
class StandIns {
 public:
  explicit StandIns(Device device) : device_(device) {}

  /// Makes them equal to `slots`, without a copy: their memory is that of the device, too.
  void share(const std::vector<Tensor>& slots);
  /// Makes them equal to `slots`, copying what has changed on one of the sides. Returns how many bytes that were.
  std::int64_t copy(const std::vector<Tensor>& slots);

  const Tensor& operator[](std::size_t i) const { return all_[i].value; }

 private:
  struct StandIn {
    Tensor value;
    ParameterStore::Place place;                // of the slot
    core::Ref<tandem::detail::Storage> source;  // whose elements it has
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
