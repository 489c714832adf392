#pragma once

// Everything a program needs.

#include <tandem/autograd/gradcheck.h>
#include <tandem/autograd/ops.h>
#include <tandem/autograd/parameter.h>
#include <tandem/autograd/parameter_store.h>
#include <tandem/core/error.h>
#include <tandem/core/grad_mode.h>
#include <tandem/core/thread_pool.h>
#include <tandem/data/cached_dataset.h>
#include <tandem/data/categories.h>
#include <tandem/data/convert.h>
#include <tandem/data/csv.h>
#include <tandem/data/dataset.h>
#include <tandem/data/idx.h>
#include <tandem/data/imputer.h>
#include <tandem/data/loader.h>
#include <tandem/data/npy.h>
#include <tandem/data/sampler.h>
#include <tandem/data/standardizer.h>
#include <tandem/data/subset.h>
#include <tandem/nn/activation.h>
#include <tandem/nn/dropout.h>
#include <tandem/nn/functional.h>
#include <tandem/nn/init.h>
#include <tandem/nn/linear.h>
#include <tandem/nn/loss.h>
#include <tandem/nn/module.h>
#include <tandem/nn/sequential.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip.h>
#include <tandem/optim/lr_scheduler.h>
#include <tandem/optim/sgd.h>
#include <tandem/tensor/cpu_allocator.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/tensor.h>
