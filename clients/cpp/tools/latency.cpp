// How long a prediction takes: one request after another, and the percentiles of their round trips.
//
//   tickpath-latency ADDRESS MODEL [--count N] [--warmup N] [--rows N] [--spin] [--samples FILE]
//
// The inputs are zeros. --samples writes the round trips as native 64-bit nanoseconds, for whoever wants more than percentiles.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tickpath/client.hpp"

namespace {

struct Arguments {
    const char* address = nullptr;
    const char* model = nullptr;
    const char* samples = nullptr;
    std::uint64_t count = 10000;
    std::uint64_t warmup = 1000;
    std::uint64_t rows = 1;
    bool spin = false;
};

// Under ten samples lie above p99.9 then.
constexpr std::uint64_t thin_below = 10000;

[[noreturn]] void usage() {
    std::fprintf(stderr, "usage: tickpath-latency ADDRESS MODEL [--count N] [--warmup N] [--rows N] [--spin] [--samples FILE]\n");
    std::exit(2);
}

std::uint64_t whole_number(const char* text) {
    char* end = nullptr;
    const unsigned long long value = text != nullptr ? std::strtoull(text, &end, 10) : 0;
    if (text == nullptr || text[0] < '0' || text[0] > '9' || *end != '\0' || value > 100000000) usage();
    return value;
}

Arguments parse(int argc, char** argv) {
    Arguments out;
    for (int i = 1; i < argc; i++) {
        const char* const word = argv[i];
        const auto value = [&] { return i + 1 < argc ? argv[++i] : nullptr; };
        if (!std::strcmp(word, "--spin")) out.spin = true;
        else if (!std::strcmp(word, "--count")) out.count = whole_number(value());
        else if (!std::strcmp(word, "--warmup")) out.warmup = whole_number(value());
        else if (!std::strcmp(word, "--rows")) out.rows = whole_number(value());
        else if (!std::strcmp(word, "--samples")) out.samples = value();
        else if (out.address == nullptr) out.address = word;
        else if (out.model == nullptr) out.model = word;
        else usage();
    }
    if (out.model == nullptr || out.count == 0) usage();
    return out;
}

[[noreturn]] void give_up(const char* text) {
    std::fprintf(stderr, "tickpath-latency: %s\n", text);
    std::exit(1);
}

std::vector<std::uint64_t> measure(tickpath::Client& client, const tickpath::Model& model, const Arguments& arguments) {
    std::vector<std::vector<std::uint8_t>> zeros;
    std::vector<tickpath::Input> inputs;
    for (const tickpath::Tensor& tensor : model.inputs) zeros.emplace_back(tensor.bytes_at(arguments.rows));
    for (std::size_t i = 0; i < zeros.size(); i++) inputs.emplace_back(model.inputs[i].dtype, zeros[i].data(), zeros[i].size());
    std::vector<std::uint64_t> taken_ns(arguments.count);
    tickpath::Reply reply;
    for (std::uint64_t i = 0; i < arguments.warmup + arguments.count; i++) {
        const std::int64_t start_ns = tickpath::detail::now_ns();
        if (client.infer(model, arguments.rows, inputs.data(), inputs.size(), reply) != tickpath::Status::ok) give_up(client.error());
        if (i >= arguments.warmup) taken_ns[i - arguments.warmup] = static_cast<std::uint64_t>(tickpath::detail::now_ns() - start_ns);
    }
    return taken_ns;
}

// The smallest sample that this share of all does not exceed. `sorted` ascends.
double percentile_us(const std::vector<std::uint64_t>& sorted, double share) {
    const std::size_t rank = static_cast<std::size_t>(share * static_cast<double>(sorted.size()));
    return static_cast<double>(sorted[std::min(rank, sorted.size() - 1)]) / 1e3;
}

void print(std::vector<std::uint64_t> taken_ns) {
    std::sort(taken_ns.begin(), taken_ns.end());
    const char* const thin = taken_ns.size() < thin_below ? " (thin)" : "";
    std::printf("p50 %.1f  p90 %.1f  p99 %.1f  p99.9 %.1f%s  max %.1f us, %zu samples\n", percentile_us(taken_ns, 0.5),
                percentile_us(taken_ns, 0.9), percentile_us(taken_ns, 0.99), percentile_us(taken_ns, 0.999), thin,
                percentile_us(taken_ns, 1), taken_ns.size());
}

void save(const char* path, const std::vector<std::uint64_t>& taken_ns) {
    std::FILE* const file = std::fopen(path, "wb");
    const bool written = file != nullptr && std::fwrite(taken_ns.data(), sizeof taken_ns[0], taken_ns.size(), file) == taken_ns.size();
    if (!written || std::fclose(file) != 0) give_up("the samples can't be written");
}

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments = parse(argc, argv);
    tickpath::Options options;
    options.client = "tickpath-latency";
    options.wait = arguments.spin ? tickpath::Wait::spin : tickpath::Wait::block;
    tickpath::Client client;
    if (client.connect(arguments.address, options) != tickpath::Status::ok) give_up(client.error());
    const tickpath::Model* const model = client.find(arguments.model);
    if (model == nullptr) give_up("the server has no such model");
    const std::vector<std::uint64_t> taken_ns = measure(client, *model, arguments);
    print(taken_ns);
    if (arguments.samples != nullptr) save(arguments.samples, taken_ns);
    return 0;
}
