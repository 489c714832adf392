#include <vector>

#include <tandem/telemetry/summary_writer.h>

// Writes two event files into a folder, the second one as a run that went on from step 3. read_events.py reads them.
int main(int argc, char** argv) {
  using tandem::telemetry::SummaryWriter;
  if (argc != 2) {
    return 2;
  }
  SummaryWriter first(argv[1]);
  for (int step = 0; step < 6; ++step) {
    first.add_scalar("loss/train", step < 2 ? 1.0 / (step + 1) : 0.25, step);
  }
  std::vector<double> values;
  for (int i = -50; i <= 50; ++i) {
    values.push_back(i / 10.0);
  }
  first.add_histogram("weights", values, 2);
  first.add_text("note", "**bold** and \u00fc", 3);
  SummaryWriter second(argv[1]);
  second.restart_at(3);
  second.add_scalar("loss/train", -7, 3);
}
