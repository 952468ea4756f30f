// Counts what the client allocates between connecting and closing: nothing, on any path that a request takes.
//
//   allocations ADDRESS     of a server of the zoo's mlp; prints one line per path with its count, and fails if one is not 0
//
// The program's own malloc counts, so operator new, libc and everything else are seen. Built without exceptions, as a trading system may be.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include "tickpath/client.hpp"

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);

static std::size_t allocated = 0;

void* malloc(std::size_t size) {
    allocated++;
    return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
    allocated++;
    return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
    allocated++;
    return __libc_realloc(old, size);
}
}

namespace {

using tickpath::Status;

struct Fixture {
    tickpath::Client& client;
    const tickpath::Model& mlp;
    float x[64];
    tickpath::Reply reply;
    bool right;

    void expect(bool held) { right = right && held; }
};

void predictions(Fixture& test) {
    float y[3];
    for (int i = 0; i < 1000; i++) {
        test.expect(test.client.infer(test.mlp, 1, {test.x}, test.reply) == Status::ok);
        test.expect(test.reply.output(0).copy_to(y, 3));
    }
}

void pipelined(Fixture& test) {
    std::uint64_t id = 0;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 16; i++) test.expect(test.client.send(test.mlp, 1, {test.x}, id) == Status::ok);
        while (test.client.in_flight() > 0) test.expect(test.client.receive(test.reply) == Status::ok);
    }
}

void refusals(Fixture& test) {
    test.expect(test.client.infer(test.mlp, 2, {test.x}, test.reply) == Status::bad_shape);  // here, before it is sent
    test.x[0] = std::numeric_limits<float>::quiet_NaN();
    test.expect(test.client.infer(test.mlp, 1, {test.x}, test.reply) == Status::bad_value);  // there
    test.x[0] = 0;
    tickpath::Call late;
    late.budget_ns = 1;
    test.expect(test.client.infer(test.mlp, 1, {test.x}, test.reply, late) == Status::deadline);
    late.budget_ns = 0;
    late.timeout_ns = 0;
    for (int i = 0; i < 20; i++) {
        const Status status = test.client.infer(test.mlp, 1, {test.x}, test.reply, late);
        test.expect(status == Status::timed_out || status == Status::ok);
    }
}

void other_calls(Fixture& test) {
    std::uint64_t server_ns = 0;
    test.expect(test.client.ping(server_ns) == Status::ok);
    test.expect(test.client.check() == Status::ok);
    test.expect(test.client.cancel(123456) == Status::ok);
    test.expect(test.client.goodbye("done") == Status::ok);
    test.expect(test.client.infer(test.mlp, 1, {test.x}, test.reply) == Status::not_ready);
}

void canary(Fixture&) {
    void* volatile seen = std::malloc(1);
    std::free(seen);
}

bool counted(const char* path, Fixture& test, void (*work)(Fixture&), bool none) {
    const std::size_t before = allocated;
    work(test);
    const std::size_t count = allocated - before;
    std::printf("%-12s %zu%s\n", path, count, test.right ? "" : "  and not what was expected came");
    return test.right && (count == 0) == none;
}

}  // namespace

int main(int argc, char** argv) {
    for (const tickpath::Wait wait : {tickpath::Wait::block, tickpath::Wait::spin}) {
        tickpath::Client client;
        tickpath::Options options;
        options.wait = wait;
        if (argc != 2 || client.connect(argv[1], options) != Status::ok) return 2;
        const tickpath::Model* const mlp = client.find("mlp");
        if (mlp == nullptr) return 2;
        Fixture test{client, *mlp, {}, {}, true};
        // The last one is seen, so that nothing else is missed.
        if (!counted("predictions", test, predictions, true) || !counted("pipelined", test, pipelined, true) ||
            !counted("refusals", test, refusals, true) || !counted("other calls", test, other_calls, true) ||
            !counted("canary", test, canary, false))
            return 1;
    }
    return 0;
}
