#include <tandem/core/check.h>
#include <tandem/parallel/comm/hosts/gloo_backend.h>

// Replaces all other sources of this folder in a build without Gloo.

namespace tandem::inline v0::parallel {

bool has_gloo() noexcept { return false; }

std::unique_ptr<Backend> gloo_backend(GlooOptions) {
  fail<ConfigError>(
      "gloo_backend: tandem was built without Gloo; apt-get install libgloo-dev, and build it again in a fresh build "
      "folder with -DTANDEM_WITH_GLOO=ON. Ranks that are threads of one process need no Gloo: parallel::spawn()");
}

}  // namespace tandem::inline v0::parallel
