// Asks a model for predictions, one at a time and then many at once.
//
//   tickpath zoo mlp mlp.onnx && tickpath serve mlp.onnx
//   predict 127.0.0.1:7070
#include <cstdio>
#include <vector>

#include "tickpath/client.hpp"

namespace {

using tickpath::Status;

int complain(const tickpath::Client& client) {
    std::fprintf(stderr, "predict: %s\n", client.error());
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    tickpath::Client client;
    if (client.connect(argc > 1 ? argv[1] : "127.0.0.1:7070") != Status::ok) return complain(client);

    const tickpath::Model* const mlp = client.find("mlp");
    if (mlp == nullptr) {
        std::fprintf(stderr, "predict: no model 'mlp' there\n");
        return 1;
    }

    // One row; what misses its budget of two milliseconds is refused rather than late.
    const std::vector<float> x(64, 0.5F);
    tickpath::Call call;
    call.budget_ns = 2000000;
    tickpath::Reply reply;
    const Status status = client.infer(*mlp, 1, {x}, reply, call);
    if (status == Status::deadline) std::printf("too late: act without it\n");
    else if (status != Status::ok) return complain(client);
    std::vector<float> y(reply.output(0).size / sizeof(float));
    if (reply.output(0).copy_to(y.data(), y.size()) && !y.empty())
        std::printf("version %.*s says %g after %llu ns in the server\n", static_cast<int>(reply.version.size()), reply.version.data(),
                    static_cast<double>(y[0]), static_cast<unsigned long long>(reply.server_ns()));

    // Several at once: answers may come in another order.
    for (int i = 0; i < 8; i++) {
        std::uint64_t id = 0;
        if (client.send(*mlp, 1, {x}, id) != Status::ok) return complain(client);
    }
    while (client.in_flight() > 0) {
        if (client.receive(reply) != Status::ok) return complain(client);
        std::printf("request %llu is answered\n", static_cast<unsigned long long>(reply.id));
    }
    return 0;
}
