#include <tandem/parallel/comm/work.h>

#include <utility>

#include <tandem/parallel/comm/comm_queue.h>
#include <tandem/tensor/recorder.h>

namespace tandem::inline v0::parallel {

Work::Work(std::shared_ptr<detail::CommQueue> queue, std::shared_ptr<detail::Operation> operation)
    : queue_(std::move(queue)), operation_(std::move(operation)) {}

void Work::wait() { queue_->wait(*operation_); }

bool Work::done() const { return queue_->is_done(*operation_); }

std::chrono::steady_clock::time_point Work::deadline() const { return operation_->time.deadline; }

PlannedCollective::PlannedCollective(std::shared_ptr<detail::CommQueue> queue,
                                     std::shared_ptr<detail::Operation> operation)
    : queue_(std::move(queue)), operation_(std::move(operation)) {}

namespace {

// Another group may be changing the planned memory.
void ask_guards(const detail::Operation& operation) {
  for (const tandem::detail::View* view : {&operation.in, &operation.out}) {
    if (view->defined()) {
      tandem::detail::ask_guard(*view->storage);
    }
  }
}

}  // namespace

void PlannedCollective::start() {
  tandem::detail::note_host_access("PlannedCollective::start");
  ask_guards(*operation_);
  queue_->start(operation_);
}

void PlannedCollective::run() {
  tandem::detail::note_host_access("PlannedCollective::run");
  ask_guards(*operation_);
  queue_->run(operation_);
}

void PlannedCollective::wait() { queue_->wait(*operation_); }

}  // namespace tandem::inline v0::parallel
