#include <tandem/parallel/distributed/sync_batch_norm.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <tandem/autograd/batch_exchange.h>

namespace tandem::inline v0::parallel {

namespace {

class RankExchange final : public autograd::BatchExchange {
 public:
  explicit RankExchange(std::unique_ptr<ProcessGroup> group) : group_(std::move(group)) {}
  std::int64_t parts() const override { return group_->size(); }
  void gather(const Tensor& all, const Tensor& mine) override { group_->all_gather_into_tensor(all, mine); }

 private:
  // The reducer's calls run on another thread during the same backward pass, so their order relative to these varies.
  std::unique_ptr<ProcessGroup> group_;
};

}  // namespace

void sync_batch_norm(const nn::ModuleRef& module, ProcessGroup& group) {
  if (group.size() == 1) {
    nn::detail::set_batch_exchange(module, nullptr);
    return;
  }
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  nn::detail::set_batch_exchange(module, std::make_shared<RankExchange>(group.new_group(std::move(ranks))));
}

}  // namespace tandem::inline v0::parallel
