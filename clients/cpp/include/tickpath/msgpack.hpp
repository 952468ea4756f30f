// As much MessagePack as the protocol needs (docs/PROTOCOL.md, section 3). Neither side allocates, throws or leaves its bytes.
//
// A Writer uses the shortest form of everything. A Reader takes every form, and after the first thing that does not fit gives zeros and
// empty views: check `failed()` once, at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tickpath {

// A view of bytes: a tensor as it travels. It may lie at any address, so copy it out rather than cast it.
struct Bytes {
    const std::uint8_t* data = nullptr;
    std::size_t size = 0;

    // The elements, as the caller's type. False, with nothing copied, unless they are exactly `count`.
    template <typename T>
    [[nodiscard]] bool copy_to(T* out, std::size_t count) const {
        if (size != count * sizeof(T)) return false;
        if (size > 0) std::memcpy(out, data, size);
        return true;
    }
};

namespace msgpack {

// True if the bytes are UTF-8: nothing overlong, no surrogates, nothing above U+10FFFF.
inline bool is_utf8(const std::uint8_t* at, std::size_t size) {
    const std::uint8_t* const end = at + size;
    while (at < end) {
        const std::uint8_t lead = *at++;
        if (lead < 0x80) continue;
        const int more = lead >= 0xC2 && lead < 0xE0 ? 1 : lead >= 0xE0 && lead < 0xF0 ? 2 : lead >= 0xF0 && lead < 0xF5 ? 3 : 0;
        if (more == 0 || end - at < more) return false;
        const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (*at < low || *at > high) return false;
        for (int i = 1; i < more; i++)
            if ((at[i] & 0xC0) != 0x80) return false;
        at += more;
    }
    return true;
}

class Writer {
public:
    Writer(std::uint8_t* bytes, std::size_t capacity) : bytes_(bytes), capacity_(capacity) {}

    // True once something did not fit; nothing is written from then on.
    bool failed() const { return failed_; }
    std::size_t size() const { return size_; }

    void nil() { byte(0xC0); }
    void boolean(bool value) { byte(value ? 0xC3 : 0xC2); }
    void number(std::uint64_t value) {
        if (value < 0x80) byte(static_cast<std::uint8_t>(value));
        else if (value <= 0xFF) headed(0xCC, value, 1);
        else if (value <= 0xFFFF) headed(0xCD, value, 2);
        else if (value <= 0xFFFFFFFF) headed(0xCE, value, 4);
        else headed(0xCF, value, 8);
    }
    void array(std::size_t count) {
        if (count < 16) byte(static_cast<std::uint8_t>(0x90 | count));
        else if (count <= 0xFFFF) headed(0xDC, count, 2);
        else headed(0xDD, count, 4);
    }
    void text(std::string_view value) {
        if (value.size() < 32) byte(static_cast<std::uint8_t>(0xA0 | value.size()));
        else sized(0xD9, value.size());
        raw(value.data(), value.size());
    }
    void binary(const void* data, std::size_t size) {
        sized(0xC4, size);
        raw(data, size);
    }

private:
    void byte(std::uint8_t value) { raw(&value, 1); }

    // A head of 8, 16 or 32 bits of length: they follow one another in bin and in str.
    void sized(std::uint8_t head8, std::size_t size) {
        if (size > 0xFFFFFFFF) failed_ = true;
        else if (size <= 0xFF) headed(head8, size, 1);
        else if (size <= 0xFFFF) headed(static_cast<std::uint8_t>(head8 + 1), size, 2);
        else headed(static_cast<std::uint8_t>(head8 + 2), size, 4);
    }
    void headed(std::uint8_t head, std::uint64_t value, int width) {
        std::uint8_t out[9] = {head};
        for (int i = 0; i < width; i++) out[width - i] = static_cast<std::uint8_t>(value >> (8 * i));
        raw(out, static_cast<std::size_t>(width) + 1);
    }
    void raw(const void* data, std::size_t size) {
        if (failed_ || size > capacity_ - size_) {
            failed_ = true;
            return;
        }
        if (size > 0) std::memcpy(bytes_ + size_, data, size);
        size_ += size;
    }

    std::uint8_t* bytes_;
    std::size_t capacity_;
    std::size_t size_ = 0;
    bool failed_ = false;
};

// An integer of either sign: `value` is its two's complement.
struct Integer {
    std::uint64_t value = 0;
    bool negative = false;
};

class Reader {
public:
    // Elements that nobody knows may nest so deep; the protocol lets a reader refuse what is deeper.
    static constexpr int depth_max = 100;

    Reader(const std::uint8_t* bytes, std::size_t size) : at_(bytes), end_(bytes + size) {}

    bool failed() const { return failed_; }
    bool at_end() const { return at_ == end_; }
    std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
    void fail() {
        failed_ = true;
        at_ = end_;
    }

    bool next_is_nil() const { return at_ < end_ && *at_ == 0xC0; }
    void nil() {
        if (head() != 0xC0) fail();
    }
    bool boolean() {
        const std::uint8_t found = head();
        if (found != 0xC2 && found != 0xC3) fail();
        return found == 0xC3;
    }
    Integer integer() {
        const std::uint8_t found = head();
        if (found < 0x80) return {found, false};
        if (found >= 0xE0) return {sign_extended(found, 1), true};
        if (found >= 0xCC && found <= 0xCF) return {big_endian(1 << (found - 0xCC)), false};
        if (found >= 0xD0 && found <= 0xD3) {
            const int width = 1 << (found - 0xD0);
            const std::uint64_t value = sign_extended(big_endian(width), width);
            return {value, value >> 63 != 0};
        }
        fail();
        return {};
    }
    std::uint64_t number() {
        const Integer found = integer();
        if (found.negative) fail();
        return found.negative ? 0 : found.value;
    }
    // How many elements follow. Each takes a byte at the least, so a count of more than the bytes that are left fails here.
    std::size_t array() {
        const std::uint8_t found = head();
        std::uint64_t count = 0;
        if ((found & 0xF0) == 0x90) count = found & 0x0F;
        else if (found == 0xDC) count = big_endian(2);
        else if (found == 0xDD) count = big_endian(4);
        else fail();
        if (count > left()) fail();
        return failed_ ? 0 : static_cast<std::size_t>(count);
    }
    std::string_view text() {
        const std::uint8_t found = head();
        std::uint64_t size = 0;
        if ((found & 0xE0) == 0xA0) size = found & 0x1F;
        else if (found >= 0xD9 && found <= 0xDB) size = big_endian(1 << (found - 0xD9));
        else fail();
        const Bytes bytes = take(size);
        if (!is_utf8(bytes.data, bytes.size)) fail();
        return failed_ ? std::string_view() : std::string_view(reinterpret_cast<const char*>(bytes.data), bytes.size);
    }
    Bytes binary() {
        const std::uint8_t found = head();
        if (found < 0xC4 || found > 0xC6) fail();
        return take(failed_ ? 0 : big_endian(1 << (found - 0xC4)));
    }
    // Passes over one value of any type.
    void skip(int depth = 0) {
        if (depth > depth_max) fail();
        const std::uint8_t found = head();
        if (found < 0x80 || found >= 0xE0 || found == 0xC0 || found == 0xC2 || found == 0xC3) return;
        if (found < 0x90) skip_all(2 * static_cast<std::uint64_t>(found & 0x0F), depth);
        else if (found < 0xA0) skip_all(found & 0x0F, depth);
        else if (found < 0xC0) take(found & 0x1F);
        else if (found >= 0xC4 && found <= 0xC6) take(big_endian(1 << (found - 0xC4)));
        else if (found >= 0xC7 && found <= 0xC9) take(1 + big_endian(1 << (found - 0xC7)));
        else if (found == 0xCA || found == 0xCB) take(found == 0xCA ? 4 : 8);
        else if (found >= 0xCC && found <= 0xD3) take(std::uint64_t{1} << ((found - 0xCC) & 3));
        else if (found >= 0xD4 && found <= 0xD8) take(1 + (std::uint64_t{1} << (found - 0xD4)));
        else if (found >= 0xD9 && found <= 0xDB) take(big_endian(1 << (found - 0xD9)));
        else if (found == 0xDC || found == 0xDD) skip_all(big_endian(found == 0xDC ? 2 : 4), depth);
        else if (found == 0xDE || found == 0xDF) skip_all(2 * big_endian(found == 0xDE ? 2 : 4), depth);
        else fail();
    }

private:
    std::uint8_t head() {
        if (at_ == end_) {
            failed_ = true;
            return 0xC1;  // what MessagePack never uses: it fits nothing
        }
        return *at_++;
    }
    std::uint64_t big_endian(int width) {
        const Bytes bytes = take(static_cast<std::uint64_t>(width));
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < bytes.size; i++) value = value << 8 | bytes.data[i];
        return value;
    }
    static std::uint64_t sign_extended(std::uint64_t value, int width) {
        const std::uint64_t sign = std::uint64_t{1} << (8 * width - 1);
        return (value ^ sign) - sign;
    }
    Bytes take(std::uint64_t size) {
        if (size > left()) {
            fail();
            return {};
        }
        const Bytes taken{at_, static_cast<std::size_t>(size)};
        at_ += size;
        return taken;
    }
    void skip_all(std::uint64_t count, int depth) {
        if (count > left()) fail();
        for (std::uint64_t i = 0; i < count && !failed_; i++) skip(depth + 1);
    }

    const std::uint8_t* at_;
    const std::uint8_t* end_;
    bool failed_ = false;
};

// Reads one array by its fields: those that are missing at the end take their defaults, those that nobody knows are passed over.
class Fields {
public:
    explicit Fields(Reader& reader) : reader_(reader), left_(reader.array()) {}

    // True if there is one more field; counts it as read.
    bool next() {
        if (left_ == 0 || reader_.failed()) return false;
        left_--;
        return true;
    }
    // The same for a field that must be there.
    bool required() {
        const bool there = next();
        if (!there) reader_.fail();
        return there;
    }
    void skip_rest() {
        while (next()) reader_.skip();
    }

private:
    Reader& reader_;
    std::size_t left_;
};

}  // namespace msgpack
}  // namespace tickpath
