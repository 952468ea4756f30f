// Models and tensors as a caller sees them: a server's description that was checked once, so that each request costs a few comparisons.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tickpath/messages.hpp"

namespace tickpath {

enum class Dtype : std::uint8_t {
    bool8,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float16,
    float32,
    float64,
    unknown,
};

namespace detail {

struct DtypeEntry {
    const char* name;
    std::uint64_t item_bytes;
};

// By the numbers of Dtype.
inline constexpr DtypeEntry dtypes[] = {
    {"bool", 1},   {"int8", 1},   {"int16", 2},  {"int32", 4},   {"int64", 8},   {"uint8", 1},   {"uint16", 2},
    {"uint32", 4}, {"uint64", 8}, {"float16", 2}, {"float32", 4}, {"float64", 8}, {"unknown", 0},
};

template <typename T>
constexpr Dtype dtype_of() {
    if constexpr (std::is_same_v<T, bool>) return Dtype::bool8;
    else if constexpr (std::is_floating_point_v<T> && sizeof(T) == 4) return Dtype::float32;
    else if constexpr (std::is_floating_point_v<T> && sizeof(T) == 8) return Dtype::float64;
    else if constexpr (std::is_integral_v<T> && sizeof(T) == 1) return std::is_signed_v<T> ? Dtype::int8 : Dtype::uint8;
    else if constexpr (std::is_integral_v<T> && sizeof(T) == 2) return std::is_signed_v<T> ? Dtype::int16 : Dtype::uint16;
    else if constexpr (std::is_integral_v<T> && sizeof(T) == 4) return std::is_signed_v<T> ? Dtype::int32 : Dtype::uint32;
    else if constexpr (std::is_integral_v<T> && sizeof(T) == 8) return std::is_signed_v<T> ? Dtype::int64 : Dtype::uint64;
    else return Dtype::unknown;
}

// False where the product is no 64-bit number.
inline bool multiply(std::uint64_t& product, std::uint64_t factor) {
    if (factor != 0 && product > std::numeric_limits<std::uint64_t>::max() / factor) return false;
    product *= factor;
    return true;
}

}  // namespace detail

// Under the names of the protocol, which are numpy's.
constexpr const char* name(Dtype dtype) { return detail::dtypes[static_cast<std::size_t>(dtype)].name; }
constexpr std::uint64_t item_bytes(Dtype dtype) { return detail::dtypes[static_cast<std::size_t>(dtype)].item_bytes; }
inline Dtype dtype_named(std::string_view text) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(Dtype::unknown); i++)
        if (text == detail::dtypes[i].name) return static_cast<Dtype>(i);
    return Dtype::unknown;
}

// An input of a request: the caller's memory in C order, which must stay until the call returns. A dtype is never converted.
struct Input : InferInput {
    // An optional input left out.
    Input() : InferInput{nullptr, 0, false} {}
    template <typename T>
    Input(const T* elements, std::size_t count) : InferInput{elements, count * sizeof(T), true}, dtype(detail::dtype_of<T>()) {
        static_assert(detail::dtype_of<T>() != Dtype::unknown, "no dtype of the protocol: give its bytes and a Dtype");
    }
    template <typename T, std::size_t N>
    Input(const T (&elements)[N]) : Input(elements, N) {}
    template <typename Container, typename = decltype(std::declval<const Container&>().data())>
    Input(const Container& elements) : Input(elements.data(), elements.size()) {}
    // Bytes as they travel, for float16 and whatever lies in memory already.
    Input(Dtype dtype_, const void* data_, std::size_t bytes_) : InferInput{data_, bytes_, true}, dtype(dtype_) {}

    Dtype dtype = Dtype::unknown;
};

// One input or output, checked.
struct Tensor {
    TensorInfo info;
    Dtype dtype = Dtype::unknown;
    std::uint64_t row_bytes = 0;  // of one row, or of the whole where there is no batch axis

    // Its bytes in a request of `rows` rows, which are no more than `Model::rows_max`.
    std::uint64_t bytes_at(std::uint64_t rows) const { return info.batch_axis < 0 ? row_bytes : row_bytes * rows; }
};

// A model of the connection that named it: it, and pointers to it, are good until that client's next `connect` or `update_models`.
struct Model {
    std::string name;
    std::string version;
    std::uint64_t handle = 0;
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    std::vector<std::uint64_t> buckets;
    std::uint64_t rows_max = 0;
    const char* fault = nullptr;  // why this client can't ask it; nullptr: it can

    // The most bytes that its Infer or Result may take as a frame.
    std::uint64_t request_bytes_at(std::uint64_t rows) const { return frame_bytes(inputs, rows); }
    std::uint64_t reply_bytes_at(std::uint64_t rows) const { return frame_bytes(outputs, rows) + version.size(); }

private:
    // Prefix, array heads and eight numbers of nine bytes, or stamps and id: under 100. A tensor's head takes five.
    static std::uint64_t frame_bytes(const std::vector<Tensor>& tensors, std::uint64_t rows) {
        std::uint64_t bytes = 100;
        for (const Tensor& tensor : tensors) bytes += tensor.bytes_at(rows) + 5;
        return bytes;
    }
};

// A feed that was opened: what the server keeps of the past, so that a tick brings only what is new. It must stay where it is while ticks
// are outstanding, and is good for the connection that opened it.
struct Feed {
    std::uint64_t feed = 0;
    std::uint64_t next_sequence = 0;  // of the next tick
    std::uint64_t window = 0;         // rows that an answer comes from; 0: states run on
    std::uint64_t filled = 0;         // how many of them were there when it was opened
    bool pads = false;                // whether ticks are answered before the window is full
    Model tick;                       // what a tick takes and gives, at one row; its name is the feed's key
};

namespace detail {

// No tensor may take more: sums of 1024 of them, and more, stay far from overflowing.
inline constexpr std::uint64_t tensor_bytes_max = std::uint64_t{1} << 40;

// Returns what is wrong with it, or nullptr.
inline const char* check_tensor(Tensor& tensor, std::uint64_t rows_max) {
    const TensorInfo& info = tensor.info;
    tensor.dtype = dtype_named(info.dtype);
    if (tensor.dtype == Dtype::unknown) return "a dtype that is not known to this client: use a newer one";
    if (info.batch_axis >= 0) {
        const std::size_t axis = static_cast<std::size_t>(info.batch_axis);
        if (axis >= info.shape.size() || info.shape[axis] == 0) return "a batch axis that its shape does not have";
    }
    std::uint64_t bytes = item_bytes(tensor.dtype);
    for (const std::uint64_t size : info.shape)
        if (!multiply(bytes, size)) return "a tensor too large to be one";
    tensor.row_bytes = bytes;
    const bool fits = info.batch_axis < 0 || multiply(bytes, rows_max);
    return fits && bytes <= tensor_bytes_max ? nullptr : "a tensor too large to be one";
}

inline const char* check_tensors(std::vector<TensorInfo>& infos, std::uint64_t rows_max, std::vector<Tensor>& out) {
    if (infos.size() > tensors_max) return "more tensors than a message may have";
    for (TensorInfo& info : infos) {
        out.emplace_back();
        out.back().info = std::move(info);
        if (const char* fault = check_tensor(out.back(), rows_max)) return fault;
    }
    return nullptr;
}

inline Model check_model(ModelInfo&& info) {
    Model model;
    model.name = std::move(info.name);
    model.version = std::move(info.version);
    model.handle = info.handle;
    model.buckets = std::move(info.buckets);
    if (model.buckets.empty()) {
        model.fault = "no buckets";
        return model;
    }
    model.rows_max = model.buckets.back();
    model.fault = check_tensors(info.inputs, model.rows_max, model.inputs);
    if (model.fault == nullptr) model.fault = check_tensors(info.outputs, model.rows_max, model.outputs);
    return model;
}

inline void take_feed(FeedInfo&& info, std::string_view key, Feed& out) {
    ModelInfo tick;
    tick.name = key;
    tick.version = std::move(info.version);
    tick.inputs = std::move(info.inputs);
    tick.outputs = std::move(info.outputs);
    tick.buckets = {1};
    out.tick = check_model(std::move(tick));
    out.feed = info.feed;
    out.next_sequence = info.next_sequence;
    out.window = info.window;
    out.filled = info.filled;
    out.pads = info.pads;
}

}  // namespace detail
}  // namespace tickpath
