#include "conv.h"

// The functions that make and read descriptors.

using namespace emulated_gpu::cudnn;

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  if (descriptor == nullptr) {
    return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "descriptor == nullptr");
  }
  *descriptor = new Held(std::make_shared<Object>(Object{.type = type}));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete held(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  if (descriptor == nullptr) {
    return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "descriptor == nullptr");
  }
  return set_attribute(**held(descriptor), name, type, count, elements);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  if (descriptor == nullptr) {
    return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "descriptor == nullptr");
  }
  const cudnnStatus_t status = check_finished(**held(descriptor));
  (*held(descriptor))->finished = status == CUDNN_STATUS_SUCCESS;
  return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t* count, void* elements) {
  if (descriptor == nullptr || count == nullptr) {
    return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a null pointer");
  }
  const Object& object = **held(descriptor);
  if (!object.finished) {
    return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not finalized");
  }
  if (object.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
      type == CUDNN_TYPE_INT64 && most == 1) {
    *count = 1;
    *static_cast<std::int64_t*>(elements) = workspace_of(object);
    return CUDNN_STATUS_SUCCESS;
  }
  if (object.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && name == CUDNN_ATTR_ENGINEHEUR_RESULTS &&
      type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const std::vector<Held> found = proposals(object);
    *count = static_cast<std::int64_t>(found.size());
    for (std::int64_t i = 0; i < *count && i < most; ++i) {
      // Results go into descriptors that the user has made.
      *held(static_cast<cudnnBackendDescriptor_t*>(elements)[i]) = found[static_cast<std::size_t>(i)];
    }
    return CUDNN_STATUS_SUCCESS;
  }
  if (object.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && name == CUDNN_ATTR_ENGINECFG_ENGINE &&
      type == CUDNN_TYPE_BACKEND_DESCRIPTOR && most == 1) {
    Held& to = *held(static_cast<cudnnBackendDescriptor_t*>(elements)[0]);
    if (to->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
      return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "an engine goes into an engine's descriptor");
    }
    *count = 1;
    to = std::make_shared<Object>(Object{.type = to->type, .finished = true, .engine = object.engine});
    return CUDNN_STATUS_SUCCESS;
  }
  if (object.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE &&
      type == CUDNN_TYPE_NUMERICAL_NOTE) {
    const std::vector<std::int64_t> notes = notes_of(object.engine);
    *count = static_cast<std::int64_t>(notes.size());
    for (std::int64_t i = 0; i < *count && i < most; ++i) {
      const auto note = static_cast<cudnnBackendNumericalNote_t>(notes[static_cast<std::size_t>(i)]);
      static_cast<cudnnBackendNumericalNote_t*>(elements)[i] = note;
    }
    return CUDNN_STATUS_SUCCESS;
  }
  return refuse(CUDNN_STATUS_BAD_PARAM, "an attribute that can't be read, or it is not emulated");
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  if (const auto status = check_handle(handle); status != CUDNN_STATUS_SUCCESS) {
    return status;
  }
  if (plan == nullptr || pack == nullptr) {
    return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a null pointer");
  }
  if (!(*held(plan))->finished || !(*held(pack))->finished) {
    return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the variant pack is not finalized");
  }
  if ((*held(plan))->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      (*held(pack))->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
    return refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a plan and a variant pack are wanted");
  }
  return execute(*handle, *held(plan), **held(pack));
}

}  // extern "C"
