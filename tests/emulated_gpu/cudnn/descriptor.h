#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <cudnn.h>

#include "../hostility.h"

// The objects that describe cuDNN's graphs.

struct cudnnContext {
  int device;
  cudaStream_t stream;
};

namespace emulated_gpu::cudnn {

struct Object;

/// The value of an attribute: one of these members, by its type.
struct Value {
  std::vector<std::int64_t> numbers;  // also holds enumerations and bool
  std::vector<double> reals;          // of f32 or f64
  bool wide = false;                  // reals came as f64
  std::vector<void*> addresses;       // also holds handles
  std::vector<std::shared_ptr<Object>> objects;
};

struct Object {
  cudnnBackendDescriptorType_t type;
  bool finished = false;
  std::map<int, Value> values{};
  std::int64_t engine = 0;  // of a proposed engine configuration

  bool has(cudnnBackendAttributeName_t name) const { return values.contains(name); }
  const Value& at(cudnnBackendAttributeName_t name) const { return values.at(name); }
  std::int64_t number(cudnnBackendAttributeName_t name, std::int64_t otherwise = 0) const {
    return has(name) ? at(name).numbers[0] : otherwise;
  }
  double real(cudnnBackendAttributeName_t name) const { return has(name) ? at(name).reals[0] : 1; }
  const std::shared_ptr<Object>& object(cudnnBackendAttributeName_t name) const { return at(name).objects[0]; }
};

/// A user's descriptor points to a Held.
using Held = std::shared_ptr<Object>;
inline Held* held(cudnnBackendDescriptor_t descriptor) { return static_cast<Held*>(descriptor); }

/// Stores the reason of a refusal for cudnnGetLastErrorString(). Returns `status`.
cudnnStatus_t refuse(cudnnStatus_t status, const char* why);

/// Stores `count` elements in `object`, if the attribute accepts them.
cudnnStatus_t set_attribute(Object& object, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::int64_t count, const void* elements);

/// Whether these attributes make a complete object of that kind.
cudnnStatus_t check_finished(const Object& object);
/// The mood towards a graph: its modes, sizes, types and alignments.
Hostility mood_of(const Object& graph);
/// The results of a search for engines.
std::vector<Held> proposals(const Object& search);
/// Bytes of workspace that a plan needs.
std::int64_t workspace_of(const Object& plan);
cudnnStatus_t execute(const cudnnContext& handle, const Held& plan, const Object& pack);

/// Checks that the handle was made for the current device.
cudnnStatus_t check_handle(cudnnHandle_t handle);
/// Whether `address` may be used on the device. On a GPU another address would sooner or later be an illegal access.
bool on_device(const void* address);
std::int64_t bytes_of(std::int64_t data_type);
double load(std::int64_t data_type, const void* base, std::int64_t index);
void store(std::int64_t data_type, void* base, std::int64_t index, double value);

/// Computes a pointwise operation in f32.
float compute(const Object& pointwise, float x, float b);
/// Whether the mode is the gradient of an activation, computed from dy and x.
bool is_backward(std::int64_t mode);
/// The number of inputs; 0 for a mode that is not emulated.
int inputs_of(std::int64_t mode);

}  // namespace emulated_gpu::cudnn
