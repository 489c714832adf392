#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <cudnn.h>

// The objects that cuDNN's graphs are described by.

struct cudnnContext {
  int device;
  cudaStream_t stream;
};

namespace emulated_gpu::cudnn {

struct Object;

/// What an attribute was set to: one of these, by its type.
struct Value {
  std::vector<std::int64_t> numbers;  // also of enumerations and bool
  std::vector<double> reals;
  std::vector<void*> addresses;  // also handles
  std::vector<std::shared_ptr<Object>> objects;
};

struct Object {
  cudnnBackendDescriptorType_t type;
  bool finished = false;
  std::map<int, Value> values{};
  std::int64_t engine = 0;  // of an engine configuration that was proposed

  bool has(cudnnBackendAttributeName_t name) const { return values.contains(name); }
  const Value& at(cudnnBackendAttributeName_t name) const { return values.at(name); }
  std::int64_t number(cudnnBackendAttributeName_t name, std::int64_t otherwise = 0) const {
    return has(name) ? at(name).numbers[0] : otherwise;
  }
  double real(cudnnBackendAttributeName_t name) const { return has(name) ? at(name).reals[0] : 1; }
  const std::shared_ptr<Object>& object(cudnnBackendAttributeName_t name) const { return at(name).objects[0]; }
};

/// A user's descriptor is one of these.
using Held = std::shared_ptr<Object>;
inline Held* held(cudnnBackendDescriptor_t descriptor) { return static_cast<Held*>(descriptor); }

/// Remembers why something is refused, for cudnnGetLastErrorString().
cudnnStatus_t refuse(cudnnStatus_t status, const char* why);

/// Reads `count` elements into `object`, if that attribute may be set to them.
cudnnStatus_t set_attribute(Object& object, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            std::int64_t count, const void* elements);

/// Whether a finished object of that kind can be made of these attributes.
cudnnStatus_t check_finished(const Object& object);
/// What a search for engines finds.
std::vector<Held> proposals(const Object& search);
/// Bytes that a plan needs.
std::int64_t workspace_of(const Object& plan);
cudnnStatus_t execute(const cudnnContext& handle, const Held& plan, const Object& pack);

/// A handle belongs to the device that was current when it was made.
cudnnStatus_t check_handle(cudnnHandle_t handle);
/// A kernel that got another address would stop with an illegal access, sooner or later.
bool on_device(const void* address);
std::int64_t bytes_of(std::int64_t data_type);
double load(std::int64_t data_type, const void* base, std::int64_t index);
void store(std::int64_t data_type, void* base, std::int64_t index, double value);

/// A pointwise operation in f32.
float compute(const Object& pointwise, float x, float b);
/// Whether it is the gradient of an activation: of dy and x.
bool is_backward(std::int64_t mode);
/// How many inputs it has; 0 for one that is not emulated.
int inputs_of(std::int64_t mode);

}  // namespace emulated_gpu::cudnn
