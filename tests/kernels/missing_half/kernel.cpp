#include <tandem/kernels/launch.h>

// A kernel whose CUDA half is declared only if WITH_CUDA_HALF is defined: see test.sh.

namespace tandem::kernels {

struct Negate {
  static constexpr const char* kName = "negate";
  float* value;
};
void run(OnCpu, Context& context, const Negate& kernel);
#ifdef WITH_CUDA_HALF
void run(OnCuda, Context& context, const Negate& kernel);
#endif

void negate(Context& context, float* value) { launch(context, Negate{value}); }

}  // namespace tandem::kernels
