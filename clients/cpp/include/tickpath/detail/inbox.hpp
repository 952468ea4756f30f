// What has come from a server and the frames in it: one buffer, made before the first request.
//
// Rules
// - `room()` is where to receive to, `received(n)` says how much came; then `next` until it gives no frame.
// - A frame is a view into the buffer, good until the next `room()`.
// - A frame that can't fit the buffer is told, not taken: `reserve` makes room where that may allocate.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "tickpath/messages.hpp"

namespace tickpath {
namespace detail {

enum class Found { nothing, frame, bad_length, no_room };

class Inbox {
public:
    // `frame_bytes_max` bounds a frame's body.
    explicit Inbox(std::size_t frame_bytes_max) : frame_bytes_max_(frame_bytes_max) {}

    void reserve(std::size_t bytes) {
        if (bytes > bytes_.size()) bytes_.resize(bytes);
    }
    std::size_t capacity() const { return bytes_.size(); }
    std::size_t waiting() const { return end_ - start_; }
    void clear() { start_ = end_ = 0; }

    std::uint8_t* room(std::size_t& size) {
        if (start_ > 0 && (start_ == end_ || end_ == bytes_.size())) {
            std::memmove(bytes_.data(), bytes_.data() + start_, waiting());
            end_ -= start_;
            start_ = 0;
        }
        size = bytes_.size() - end_;
        return bytes_.data() + end_;
    }
    void received(std::size_t size) { end_ += size; }

    // The next whole frame's body. `needed` is, at `no_room`, the bytes that the buffer must have.
    Found next(Bytes& body, std::size_t& needed) {
        if (waiting() < prefix_bytes) return Found::nothing;
        const std::uint8_t* at = bytes_.data() + start_;
        std::size_t size = 0;
        for (std::size_t i = 0; i < prefix_bytes; i++) size |= static_cast<std::size_t>(at[i]) << (8 * i);
        if (size < frame_bytes_min || size > frame_bytes_max_) return Found::bad_length;
        needed = prefix_bytes + size;
        if (waiting() < needed) return needed > bytes_.size() ? Found::no_room : Found::nothing;
        body = {at + prefix_bytes, size};
        start_ += needed;
        return Found::frame;
    }

private:
    std::size_t frame_bytes_max_;
    std::vector<std::uint8_t> bytes_;
    std::size_t start_ = 0;
    std::size_t end_ = 0;
};

}  // namespace detail
}  // namespace tickpath
