#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tandem/core/error.h>
#include <tandem/parallel/comm/collective.h>

// Internal: the wire format. Three kinds of packets travel between two ranks:
//
//   mail      a head of 256 bytes and a payload of up to 64 KiB. A receiver reads each sender's mails in sending order.
//   data      a part of a tensor that is too long for a mail.
//   farewell  the error that ended the group, as a rank's last packet.
//
// Gloo tells packets apart by a slot, a number that sender and receiver both name. A packet longer than the memory that
// waits for it ends the receiver's process. Therefore memory for the longest mail and for a farewell waits from the
// start, and the slot of data is derived from the call. If two ranks make different calls, their data finds no memory,
// and the mails, which name the call, report the difference.

namespace tandem::inline v0::parallel {

/// The call that this rank executes, for deadlines and errors.
struct CallInProgress {
  const Collective& call;
  const CallTime& time;
};

/// The head of a mail.
struct Mail {
  enum class Kind : std::uint32_t {
    greeting,  // the first mail: its payload proves the sender's rank
    call,      // exchange()
    work,      // run() of a collective
    message,   // a send()
    waiting,   // the sender waits in shared memory for the rest of this collective
    goodbye    // the last mail
  };

  Kind kind = Kind::call;
  std::uint32_t payload = 0;  // bytes that follow the head in this mail
  std::uint64_t number = 0;   // of a message: its index among the sender's messages to the receiver
  std::uint64_t taken = 0;    // the sender has taken all of the receiver's messages below this number
  Collective call = {};
};

/// The size of a mail's head, and the alignment of payloads.
inline constexpr std::size_t kMailHead = 256;
static_assert(sizeof(Mail) <= kMailHead);
/// Longer payloads travel as data.
inline constexpr std::size_t kMailPayload = 64 << 10;
inline constexpr std::size_t kMailBytes = kMailHead + kMailPayload;

inline const void* payload_of(const Mail& mail) { return reinterpret_cast<const std::byte*>(&mail) + kMailHead; }

inline constexpr std::uint64_t kMailSlot = 1;
inline constexpr std::uint64_t kFarewellSlot = 2;
/// Slots for the data of long messages, combined with the message's number.
inline constexpr std::uint64_t kMessageSlots = std::uint64_t{1} << 62;
/// Slots for the data of collectives, combined with a hash of the call: two slots for each call.
inline constexpr std::uint64_t kCallSlots = std::uint64_t{1} << 63;

/// A CommError as a fixed number of bytes. Text that does not fit is cut off.
struct Farewell {
  Farewell() = default;
  explicit Farewell(const CommError& error) : details(error.details()) {
    for (int k = 0; k <= static_cast<int>(CollectiveKind::new_group); ++k) {
      if (std::string_view(details.op) == to_string(static_cast<CollectiveKind>(k))) {
        kind = k;
      }
    }
    details.op = nullptr;
    std::string_view(error.what()).copy(text, sizeof text - 1);
  }
  CommError error() const {
    CommError::Details named = details;
    named.op = kind < 0 ? "" : to_string(static_cast<CollectiveKind>(kind));
    return CommError(text, named);
  }

  CommError::Details details = {};  // without the op's name, which is a pointer
  int kind = -1;                    // the op's CollectiveKind
  char text[4000] = {};
};

}  // namespace tandem::inline v0::parallel
