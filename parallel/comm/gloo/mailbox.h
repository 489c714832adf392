#pragma once

#include <tandem/parallel/comm/gloo/wire.h>  // first: see mesh.h

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

// Internal to GlooWire.

namespace tandem::inline v0::parallel {

inline constexpr std::uint64_t kMailSlot = 1;
inline constexpr std::uint64_t kFarewellSlot = 2;

/// Mails of both directions are in places that are used in turns. Gloo has been told of all that may come in, so that
/// what is sent is on its way at once.
struct GlooWire::Mailbox {
  struct Place {
    alignas(64) std::byte bytes[kMailBytes];
    std::unique_ptr<Buffer> buffer;
  };
  std::array<Place, kPlaces> in;
  std::array<Place, kPlaces> out;
  std::uint64_t taken = 0;
  std::uint64_t posted = 0;
  bool looked = false;                    // the next mail has come
  std::uint64_t end = ~std::uint64_t{0};  // mails from here on cannot come: the connection was gone
  Farewell farewell;
  std::unique_ptr<Buffer> farewell_buffer;
  std::optional<Collective> last;  // its call in the last exchange()
};

}  // namespace tandem::inline v0::parallel
