#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tandem/core/export.h>
#include <tandem/parallel/rendezvous/store.h>

// Internal: the one protocol by which several processes meet in a store. The ranks of a job, the ranks of a group
// across hosts, and the launchers of several nodes all use it.
//
// Each rank brings a value. When all ranks have come, every rank learns all values. The keys begin with the meeting's
// prefix:
//
//   here/<r>   from rank r: a random mark and the rank's value. The mark is new each time the rank comes.
//   met        from rank 0: the marks and values of all ranks.
//
// 1. Every rank writes its `here`.
// 2. Rank 0 waits for each `here` in turn and then reads all of them again: while rank 0 waited, another rank may have
//    given up and come back with a new mark. Once nothing has changed, rank 0 writes `met`.
// 3. The other ranks wait for a `met` that contains their own mark. Then every rank erases its own `here`.
//
// Each rank's value is compared with rank 0's value as early as possible. On rank 0 `check` receives each rank's value;
// on every other rank it receives rank 0's value as soon as that exists.
//
// At the deadline a rank learns which ranks have no `here`. If no `here` is missing, rank 0 did not come to write
// `met`. The store handles the death of a rank: a TcpStore's calls end with the server's verdict.
//
// Meeting::Kind describes two processes with one rank, and a stranger who comes late.

namespace tandem::inline v0::parallel {

/// One rank's part in a meeting.
struct Meeting {
  /// The other events that can happen under the prefix.
  enum class Kind : std::uint8_t {
    /// A group of ranks may meet repeatedly, also after tries that failed on some of them. Rank 0 ignores marks that
    /// occur in the last `met`, which stays in the store for this purpose. A rank that gives up erases its `here`.
    again,
    /// Each rank may come once: the first process adds to `claim/<r>`, and a second process with that rank is refused,
    /// also later, because the claims stay. After a failure all keys stay.
    once,
    /// The ranks already know each other. The last one to leave erases `met`, so that no key stays.
    passing
  };

  std::string prefix;       // of the keys, without the final '/'
  int rank = 0;             // this rank
  int size = 1;             // number of ranks that meet
  std::string value = {};   // this rank's contribution
  Kind kind = Kind::again;  // see there
  std::chrono::steady_clock::time_point deadline = {};
  /// Throws if the value of `rank` is incompatible with this rank's value. The exception ends the meeting on this rank.
  std::function<void(int rank, const std::string& value)> check = {};
  /// Called several times a second during a wait; false ends the wait.
  std::function<bool()> goes_on = {};
};

/// The outcome of a meeting. Exactly one member is non-empty or true, unless `goes_on` ended the meeting.
struct Met {
  std::vector<std::string> values = {};  // of all ranks, in rank order
  std::vector<int> missing = {};         // ranks that were absent at the deadline
  bool is_taken = false;                 // another process has this rank
};

/// Runs the meeting. Throws the store's errors: StoreError::Kind::verdict if a rank died meanwhile.
TANDEM_API Met meet(Store& store, const Meeting& meeting);

/// The other ranks that are absent now. Valid before and during a meeting, not after it.
TANDEM_API std::vector<int> ranks_missing(Store& store, const Meeting& meeting);

/// Like ranks_missing(), but for the lowest rank that is here. All other ranks get none, and so do all once they have
/// met.
TANDEM_API std::vector<int> ranks_missing_for_lowest(Store& store, const Meeting& meeting);

/// A random name of 16 hexadecimal digits.
TANDEM_API std::string random_name();

}  // namespace tandem::inline v0::parallel
