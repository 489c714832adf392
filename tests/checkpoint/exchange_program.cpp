#include <tandem/checkpoint/safetensors.h>

// Loads each file and saves what it holds: exchange_program FROM TO [FROM TO ...].
int main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    tandem::save(tandem::load(argv[i]), argv[i + 1]);
  }
}
