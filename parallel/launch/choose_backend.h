#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include <tandem/parallel/comm/alarm.h>
#include <tandem/parallel/comm/backend.h>
#include <tandem/parallel/rendezvous/environment.h>
#include <tandem/parallel/rendezvous/store.h>

// Internal.

namespace tandem::inline v0::parallel {

/// Connects this rank with the others by the backend of that name, or by the best there is. Keys in `store` begin with
/// `prefix`. Throws ConfigError for a name that is none or that this build has not, CommError where it fails.
std::unique_ptr<Backend> choose_backend(std::string_view name, const WorldInfo& world,
                                        const std::shared_ptr<Store>& store, const std::string& prefix,
                                        const std::shared_ptr<Alarm>& alarm,
                                        std::chrono::steady_clock::time_point deadline);

}  // namespace tandem::inline v0::parallel
