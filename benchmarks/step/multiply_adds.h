#pragma once

#include "step/step.h"

namespace bench {

/// The multiply-adds of products and convolutions in a step, with those of padding. Takes one step.
double multiply_adds_of(Step& step);

}  // namespace bench
