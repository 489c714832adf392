#pragma once

// For programs that bring kernels of their own (docs/own-kernel.md). nvcc does not read tensors: a kernel's arguments
// and its CUDA half include only <tandem/kernels/...>.

#include <tandem/autograd/function.h>
#include <tandem/autograd/ops.h>
#include <tandem/core/dtype.h>
#include <tandem/core/error.h>
#include <tandem/core/float16.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/philox.h>
#include <tandem/kernels/step_state.h>
#include <tandem/tensor/data_ptr.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/tensor.h>
