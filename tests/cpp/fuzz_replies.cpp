// For libFuzzer: whatever a server sends, in whatever pieces, the reader takes it or refuses it.
//
//   clang++ -std=c++17 -g -O1 -fsanitize=fuzzer,address,undefined -I clients/cpp/include tests/cpp/fuzz_replies.cpp -o fuzz
//   fuzz -max_total_time=600 -max_len=4096 corpus/
//
// The input is a server's bytes; its first byte says how long the pieces are.
#include <cstdint>
#include <cstring>

#include "tickpath/detail/inbox.hpp"
#include "tickpath/messages.hpp"
#include "tickpath/model.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::size_t piece_bytes = std::size_t{1} + *data++;
    size--;
    tickpath::detail::Inbox inbox(1 << 16);
    inbox.reserve(64);
    static tickpath::ServerMessage message;
    std::size_t at = 0, needed = 0;
    while (at < size) {
        std::size_t room = 0;
        std::uint8_t* const out = inbox.room(room);
        std::size_t taken = size - at < piece_bytes ? size - at : piece_bytes;
        if (taken > room) taken = room;
        std::memcpy(out, data + at, taken);
        inbox.received(taken);
        at += taken;
        tickpath::Bytes body;
        tickpath::detail::Found found;
        while ((found = inbox.next(body, needed)) == tickpath::detail::Found::frame) {
            if (!tickpath::read_server_message(body.data, body.size, message)) return 0;
            for (tickpath::ModelInfo& info : message.models) {
                const tickpath::Model model = tickpath::detail::check_model(std::move(info));
                if (model.fault == nullptr && model.reply_bytes_at(model.rows_max) == 0) __builtin_trap();
            }
        }
        if (found == tickpath::detail::Found::bad_length) return 0;
        if (found == tickpath::detail::Found::no_room && inbox.waiting() == inbox.capacity()) inbox.reserve(2 * inbox.capacity());
    }
    return 0;
}
