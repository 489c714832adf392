#include <tandem/parallel/rendezvous/exposure.h>

#include <tandem/core/check.h>
#include <tandem/core/warning.h>
#include <tandem/parallel/rendezvous/job_token.h>

namespace tandem::inline v0::parallel {

void check_exposure(const std::string& address, bool is_loopback, bool has_token) {
  if (is_loopback || has_token) {
    return;
  }
  check<ConfigError>(process_environment("TANDEM_INSECURE_RENDEZVOUS") == "1",
                     "rendezvous at {}: without a token anybody on that network could join the job. Make one and give "
                     "it to every rank: export TANDEM_JOB_TOKEN=$(openssl rand -hex 32). To do without, on a network "
                     "where you trust everybody: export TANDEM_INSECURE_RENDEZVOUS=1",
                     address);
  core::warn("rendezvous at " + address +
             " without a token (TANDEM_INSECURE_RENDEZVOUS=1): anybody on that network "
             "can join the job, and read and change what its ranks tell each other");
}

}  // namespace tandem::inline v0::parallel
