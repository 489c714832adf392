#pragma once

#include <tandem/tensor/tensor.h>

/// relu(a) * b, element by element (ReGLU of "GLU variants improve transformer", Shazeer, 2020). `a` and `b` have one
/// shape, one device and one dtype, f32 or f64. There is no second derivative.
tandem::Tensor reglu(const tandem::Tensor& a, const tandem::Tensor& b);
