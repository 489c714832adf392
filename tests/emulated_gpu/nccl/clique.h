#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "emulated_nccl.h"

// The state behind the emulated NCCL's functions. One mutex guards all of it.

namespace emulated_nccl::detail {

enum class Kind { all_reduce, reduce, broadcast, all_gather, reduce_scatter, parts };

// One send or recv of a group of them.
struct Part {
  bool sends;
  int peer;
  const void* from;
  void* to;
  std::size_t count;
  bool done = false;
};

// One rank's arguments to one collective.
struct Entry {
  bool at_head = false;  // the rank's stream has reached the collective
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  std::vector<Part> parts{};
};

// One collective over all ranks.
struct Meeting {
  Kind kind{};
  ncclDataType_t type{};
  ncclRedOp_t op{};
  int root = -1;
  std::vector<Entry> entries{};
  bool hangs = false;
  bool done = false;
};

struct Clique {
  int size = 0;
  int joined = 0;
  bool twice_on_one_gpu = false;
  std::vector<int> devices;
  std::map<int, std::shared_ptr<Meeting>> meetings;  // by the collective's number
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  Trouble trouble = Trouble::none;
  Counts counts;
  std::map<int, std::shared_ptr<Clique>> cliques;  // by id
  int last_id = 0;

  static State& get();
};

std::size_t size_of(ncclDataType_t type);
// Computes all ranks' results from all ranks' inputs.
void carry_out(Meeting& meeting);

}  // namespace emulated_nccl::detail

struct ncclComm {
  std::shared_ptr<emulated_nccl::detail::Clique> clique;
  int rank = 0;
  int device = 0;
  int calls = 0;      // collectives so far
  int unsettled = 0;  // queries left until the operation is done
  bool inside = false;
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
  ncclResult_t error = ncclSuccess;
};
