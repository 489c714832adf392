#include <tandem/parallel/rendezvous/environment.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "fuzz/promises.h"
#include "fuzz/targets.h"

namespace tandem::fuzz {

namespace {

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

void environment(Bytes input) {
  check_promises(input.size(), [&] {
    std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    const std::string_view method = take_line(text);
    std::map<std::string, std::string> variables;
    while (!text.empty()) {
      const std::string_view line = take_line(text);
      const std::size_t equals = std::min(line.find('='), line.size());
      variables[std::string(line.substr(0, equals))] = line.substr(std::min(equals + 1, line.size()));
    }
    const auto lookup = [&](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    const parallel::InitMethod where = parallel::parse_init_method(method);
    const parallel::WorldInfo world = parallel::read_world(where, {}, lookup);
    promise(world.world_size >= 1 && world.world_size <= parallel::kMaxWorldSize, "there are ranks");
    promise(world.rank >= 0 && world.rank < world.world_size, "the rank is one of them");
    promise(world.local_world_size >= 1 && world.local_world_size <= world.world_size, "some are on this host");
    promise(world.local_rank >= 0 && world.local_rank < world.local_world_size, "and this one is one of those");
    promise(where.kind == parallel::InitMethod::Kind::file || !world.address.empty(), "the store is somewhere");
    promise(world.port != 0 || world.world_size == 1 || where.kind == parallel::InitMethod::Kind::file,
            "its port is known");
    promise(describe(world).size() < 1000, "what is said of it is short");
  });
}

}  // namespace tandem::fuzz
