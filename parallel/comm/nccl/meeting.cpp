#include <tandem/parallel/comm/nccl/meeting.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/check.h>
#include <tandem/core/cuda/runtime.h>

namespace tandem::inline v0::parallel::nccl {

namespace {

// Which GPU of the world a rank has, and whether it can begin.
struct Card {
  std::array<char, 40> host;  // of one start of one machine
  std::array<int, 3> place;   // on its PCI buses
  int device;
  std::array<char, 160> problem;
  ncclUniqueId id;  // of rank 0
};

template <std::size_t kSize>
void write(std::array<char, kSize>& to, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), to.begin());
}

std::string host_name() {
  std::string name;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), name);
  return name;
}

// Ways of telling NCCL that ranks may share a GPU; whether they can, it decides itself.
bool may_share() {
  return std::getenv("NCCL_HOSTID") != nullptr || std::getenv("NCCL_MULTI_RANK_GPU_ENABLE") != nullptr;
}

Card own_card(int rank, Device gpu) {
  Card card{};
  write(card.problem, loaded().problem);
  if (!loaded().problem.empty()) {
    return card;
  }
  write(card.host, host_name());
  card.device = gpu.index;
  const cudaDeviceAttr attributes[] = {cudaDevAttrPciDomainId, cudaDevAttrPciBusId, cudaDevAttrPciDeviceId};
  for (std::size_t i = 0; i < card.place.size(); ++i) {
    cuda::require(cudaDeviceGetAttribute(&card.place[i], attributes[i], gpu.index), "cudaDeviceGetAttribute");
  }
  if (rank == 0) {
    if (const ncclResult_t result = api().ncclGetUniqueId(&card.id); result != ncclSuccess) {
      write(card.problem, fmt::format("ncclGetUniqueId: {}", api().ncclGetErrorString(result)));
    }
  }
  return card;
}

}  // namespace

ncclUniqueId meet(Backend& base, Device gpu, const CallTime& time) {
  const Card own = own_card(base.rank(), gpu);
  std::vector<Card> cards(static_cast<std::size_t>(base.size()), own);
  if (base.size() > 1) {
    constexpr std::int64_t kBytes = sizeof(Card);
    const Collective call{.kind = CollectiveKind::all_gather, .dtype = DType::u8, .shape = {kBytes}};
    base.run(call, {&own, cards.data(), kBytes}, time);
  }
  for (std::size_t r = 0; r < cards.size(); ++r) {
    check<ConfigError>(cards[r].problem[0] == '\0',
                       "nccl_backend: rank {} cannot use NCCL: {}; tensors of GPUs can go by Gloo, through page-locked "
                       "memory",
                       r, cards[r].problem.data());
    for (std::size_t other = 0; other < r && !may_share(); ++other) {
      check<ConfigError>(
          cards[r].host != cards[other].host || cards[r].place != cards[other].place,
          "nccl_backend: ranks {} and {} are both on cuda:{} of one machine, and NCCL takes one rank of a "
          "group per GPU; give each rank a GPU of its own, or take Gloo, whose ranks may share one",
          other, r, cards[r].device);
    }
  }
  return cards.front().id;
}

}  // namespace tandem::inline v0::parallel::nccl
