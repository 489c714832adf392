#include <tandem/core/check.h>
#include <tandem/parallel/job/spawn.h>

// Replaces parallel/job/spawn_processes.cpp in the bundle. The ranks of its tests are threads, and without this call
// the program needs neither Gloo nor OpenSSL.

namespace tandem::inline v0::parallel::detail {

void spawn_processes(int, core::FunctionRef<void(ProcessGroup&)>, const SpawnOptions&, const std::source_location&) {
  fail<ConfigError>("spawn: this program was built without ranks as processes");
}

}  // namespace tandem::inline v0::parallel::detail
