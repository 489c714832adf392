#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/parallel/comm/collective.h>

// Internal: what two ranks of GlooBackend send each other beside their tensors' bytes, and small tensors with it.

namespace tandem::inline v0::parallel {

/// The head of every mail. What Gloo receives into has to be as long as what comes: mails have at most kMailBytes, and
/// tell what else is coming, so that memory of the right size can wait for it.
struct GlooMail {
  enum class Kind : std::uint32_t {
    greeting,  // the first one: the payload proves who it is
    call,      // exchange()
    work,      // run() of a collective
    message,   // a send()
    waiting,   // in this collective, through shared memory
    goodbye    // no more
  };

  Kind kind = Kind::call;
  std::uint32_t payload = 0;  // bytes that follow the head in this mail
  std::uint64_t number = 0;   // of a message, among those from this rank to the same one
  std::uint64_t taken = 0;    // messages of the receiver's whose copies the sender of this needs no more: all below
  Collective call = {};
};

/// Of the head in a mail, and the alignment of payloads.
inline constexpr std::size_t kMailHead = 256;
static_assert(sizeof(GlooMail) <= kMailHead);
/// What is not longer goes with the mail.
inline constexpr std::size_t kMailPayload = 64 << 10;
/// The longest.
inline constexpr std::size_t kMailBytes = kMailHead + kMailPayload;

/// What follows the head of a mail.
inline const void* payload_of(const GlooMail& mail) { return reinterpret_cast<const std::byte*>(&mail) + kMailHead; }

/// What a call, which is in progress on this rank, is; for errors.
struct GlooCall {
  const Collective& call;
  const CallTime& time;
};

}  // namespace tandem::inline v0::parallel
