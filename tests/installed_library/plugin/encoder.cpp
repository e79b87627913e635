// Nothing but a folder's encoder, whose parts must be found by themselves.
#include <linnet/linnet.h>

struct Embedder : linnet::Module {
  explicit Embedder(const std::string& folder) : encoder{this, "encoder", folder} {}
  linnet::PretrainedEncoder encoder;
};

int main(int count, char** arguments) { return count > 1 && Embedder(arguments[1]).encoder.width() == 0 ? 1 : 0; }
