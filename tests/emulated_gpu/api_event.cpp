#include <algorithm>

#include "capture.h"
#include "runtime.h"

// Functions for events, and for streams that wait for them.

using emulated_gpu::detail::call;
using emulated_gpu::detail::Capture;
using emulated_gpu::detail::forbid_in_capture;
using emulated_gpu::detail::Lock;
using emulated_gpu::detail::Marker;
using emulated_gpu::detail::Runtime;
using emulated_gpu::detail::Task;

namespace {

// Makes `stream` take part in the capture that `event` was recorded in.
cudaError_t join(CUstream_st& stream, CUevent_st& event) {
  const std::shared_ptr<Capture> capture = event.capture.lock();
  if (stream.capture != nullptr && stream.capture->invalidated) {
    return cudaErrorStreamCaptureInvalidated;
  }
  if (!event.captured) {
    stream.capture->invalidated = true;  // the capture would depend on work outside of it
    return cudaErrorStreamCaptureIsolation;
  }
  if (capture == nullptr) {
    return cudaErrorCapturedEvent;  // that capture has ended
  }
  if (stream.capture == nullptr) {
    if (capture->invalidated) {
      return cudaErrorStreamCaptureInvalidated;
    }
    stream.capture = capture;
    stream.tail = event.tail;
    return cudaSuccess;
  }
  if (stream.capture != capture) {
    stream.capture->invalidated = true;
    capture->invalidated = true;
    return cudaErrorStreamCaptureMerge;
  }
  for (const std::size_t node : event.tail) {
    if (std::find(stream.tail.begin(), stream.tail.end(), node) == stream.tail.end()) {
      stream.tail.push_back(node);
    }
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call([&](Runtime& runtime, Lock&) {
    constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming;
    if (runtime.devices.empty()) {
      return cudaErrorNoDevice;
    }
    if (event == nullptr || (flags & ~kKnown) != 0) {
      return cudaErrorInvalidValue;
    }
    auto made = std::make_unique<CUevent_st>();
    made->device = &runtime.current();
    made->flags = flags;
    *event = made.get();
    runtime.events.insert(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&](Runtime& runtime, Lock&) {
    const cudaError_t error = runtime.check(event);
    std::erase_if(runtime.events, [event](const auto& known) { return known.get() == event; });
    return error;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    if (const cudaError_t error = runtime.check(event); error != cudaSuccess) {
      return error;
    }
    if (event->device != stream->device) {
      return cudaErrorInvalidResourceHandle;
    }
    if (stream->capture != nullptr) {
      if (stream->capture->invalidated) {
        return cudaErrorStreamCaptureInvalidated;
      }
      event->captured = true;
      event->capture = stream->capture;
      event->tail = stream->tail;
      return cudaSuccess;
    }
    event->captured = false;
    event->marker = std::make_shared<Marker>();
    event->marker->stream = stream;
    Task task;
    task.name = "an event";
    task.record = event->marker;
    return runtime.submit(lock, *stream, std::move(task));
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = runtime.check(event); error != cudaSuccess) {
      return error;
    }
    if (const cudaError_t error = forbid_in_capture(*event); error != cudaSuccess) {
      return error;
    }
    if (const cudaError_t error = forbid_in_capture(runtime); error != cudaSuccess) {
      return error;
    }
    const auto marker = event->marker;
    if (marker != nullptr && !marker->done) {
      runtime.go_on(lock, *marker->stream);
    }
    return marker == nullptr || marker->done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = runtime.check(event); error != cudaSuccess) {
      return error;
    }
    if (const cudaError_t error = forbid_in_capture(*event); error != cudaSuccess) {
      return error;
    }
    if (event->marker != nullptr) {
      runtime.finish(lock, event->marker);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call([&](Runtime& runtime, Lock&) {
    if (milliseconds == nullptr) {
      return cudaErrorInvalidValue;
    }
    for (const cudaEvent_t event : {start, end}) {
      if (const cudaError_t error = runtime.check(event); error != cudaSuccess) {
        return error;
      }
      if ((event->flags & cudaEventDisableTiming) != 0 || event->marker == nullptr) {
        return cudaErrorInvalidResourceHandle;
      }
    }
    if (!start->marker->done || !end->marker->done) {
      return cudaErrorNotReady;
    }
    *milliseconds = static_cast<float>((end->marker->seconds - start->marker->seconds) * 1e3);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call([&](Runtime& runtime, Lock& lock) {
    if (const cudaError_t error = runtime.check(stream); error != cudaSuccess) {
      return error;
    }
    if (const cudaError_t error = runtime.check(event); error != cudaSuccess) {
      return error;
    }
    if (event->captured || stream->capture != nullptr) {
      return join(*stream, *event);
    }
    if (event->marker == nullptr || event->marker->done) {
      return cudaSuccess;
    }
    Task task;
    task.name = "a wait";
    task.wait = event->marker;
    return runtime.submit(lock, *stream, std::move(task));
  });
}
