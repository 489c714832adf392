#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/tensor/tensor.h>

// Internal: ranks that share out the updates of parameters, and perhaps the parameters themselves (ZeRO: Rajbhandari et
// al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020).

namespace tandem::inline v0::autograd {

class Leaf;

/// Ranks that make or leave out the steps of their optimisers together, because each has a part of the gradients.
/// Implemented in parallel/comm; an optimiser calls it, on all ranks alike.
class StepPartners {
 public:
  enum class Total { sum, largest };
  /// Sets `value`, one f64, to the sum or to the largest of all ranks' values. A collective, which may be a part of a
  /// captured step.
  virtual void total(const detail::View& value, Total how) = 0;

 protected:
  ~StepPartners() = default;
};

/// Why ranks are StepPartners: they have other elements of the gradient (shard, tensor) or other parameters (pipeline).
/// An optimiser with partners of several kinds asks them in this order, so that what one rank of a mesh knows reaches
/// all of them.
enum class PartnerKind : std::uint8_t { shard, tensor, pipeline };
inline constexpr std::size_t kPartnerKinds = 3;

/// A leaf's partners of each kind, usually none.
class LeafPartners {
 public:
  void set(PartnerKind kind, const std::shared_ptr<StepPartners>& partners) noexcept { of(kind) = partners; }
  std::shared_ptr<StepPartners> get(PartnerKind kind) const noexcept { return of(kind).lock(); }
  /// As get(), of a group that must outlive the parameter's last step. Throws ConfigError if it is gone.
  std::shared_ptr<StepPartners> require(PartnerKind kind) const;

 private:
  std::weak_ptr<StepPartners>& of(PartnerKind kind) noexcept { return all_[static_cast<std::size_t>(kind)]; }
  const std::weak_ptr<StepPartners>& of(PartnerKind kind) const noexcept {
    return all_[static_cast<std::size_t>(kind)];
  }

  std::array<std::weak_ptr<StepPartners>, kPartnerKinds> all_;
};

/// A group of ranks, each of which updates its part of the elements of all parameters. Implemented by the wrapper that
/// shares parameters out (parallel/distributed); an optimiser calls it. All functions are collectives.
class Sharding {
 public:
  /// "DistributedDataParallel #0", for texts.
  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// This rank is about to update its parts.
  virtual void begin_update() = 0;
  /// This rank has updated its parts of these leaves. Brings the other ranks' parts, until their elements are next used
  /// at the latest, unless each rank keeps its own parts alone. May be a part of a captured step.
  virtual void updated(const std::vector<const Leaf*>& leaves) = 0;
  /// Joins the ranks' parts of a tensor: in `tensor`, which is dense, each rank has its part, and 0 elsewhere.
  virtual void join(const detail::View& tensor) = 0;

  /// Whether a rank keeps its parts of the parameters alone, so that the others come only while something needs them.
  virtual bool keeps_parts() const noexcept = 0;
  /// From now on this thread may use one parameter after another outside of a pass, on all ranks in the same order.
  virtual void begin_reading() = 0;
  /// Gives back what begin_reading() has brought.
  virtual void end_reading() noexcept = 0;

 protected:
  ~Sharding() = default;
};

/// While it exists, its thread may use some tensors one after another, even where ranks keep parts of them. A
/// collective there: all ranks open one, and use the tensors in the same order.
class TANDEM_API ReadingScope {
 public:
  [[nodiscard]] explicit ReadingScope(const std::vector<Tensor>& tensors);
  ~ReadingScope();
  ReadingScope(const ReadingScope&) = delete;
  ReadingScope& operator=(const ReadingScope&) = delete;

 private:
  ReadingScope() = default;
  std::vector<Sharding*> sharings_;
};
/// Whether this rank keeps a part of the tensor alone.
TANDEM_API bool is_kept_in_parts(const Tensor& tensor) noexcept;

/// The elements of a parameter, and of the gap behind it in its ParameterStore, that this rank updates.
struct LeafPart {
  Sharding* by = nullptr;  // null: this rank updates all of it
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const noexcept { return end - begin; }
  /// The first element of the part of a parameter with `numel` elements, and how many it has without the gap.
  std::int64_t first_of(std::int64_t numel) const noexcept { return by != nullptr ? std::min(begin, numel) : 0; }
  std::int64_t count_of(std::int64_t numel) const noexcept {
    return (by != nullptr ? std::min(end, numel) : numel) - first_of(numel);
  }
  friend bool operator==(const LeafPart&, const LeafPart&) = default;
};

}  // namespace tandem::inline v0::autograd
