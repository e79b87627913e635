// One function of its own, which uses much of the library.
#include <linnet/linnet.h>

namespace {
struct Net : linnet::Module {
  linnet::ConvReluPool conv{this, "conv", 1, 4};
  linnet::BatchNorm norm{this, "norm", 4};
  linnet::Sequential rest{this, "rest"};
  linnet::ModuleList<linnet::Linear> layers{this, "layers", 2, int64_t{4}, int64_t{4}};
};
}  // namespace

extern "C" double plugin_train(const char* images, const char* labels) {
  using namespace linnet;
  Net net;
  net.rest.add<Linear>(4, 10);
  Loader loader(Dataset::idx(images, labels), {.batch = 8});
  Learner learner(
      net,
      [&](Tracer& trace) -> Loss {
        Tensor x = global_avg_pool(net.norm(net.conv(trace.input("images"))));
        for (Linear& layer : net.layers) x = relu(layer(x));
        const Tensor targets = trace.input("labels");
        return {.sum = cross_entropy_sum(net.rest(x), targets), .count = count_targets(targets)};
      },
      loader.shapes());
  return learner.fit(loader, {.epochs = 1}).loss;
}
