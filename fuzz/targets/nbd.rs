//! What a client sends to the NBD server: a handshake, or requests behind a right one. Whatever it is, it is answered or
//! ends the connection.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

/// How much of what is sent is as the protocol wants it.
#[derive(Debug, Arbitrary)]
enum Sent {
    /// Nothing.
    Noise(Vec<u8>),
    /// The beginnings of options.
    Options(bool, Vec<(u8, Vec<u8>)>),
    /// The handshake and the beginnings of requests.
    Requests { structured: bool, requests: Vec<Request>, rest: Vec<u8> },
}

#[derive(Debug, Arbitrary)]
struct Request {
    flags: u8,
    command: u8,
    cookie: u8,
    offset: u32,
    bytes: u32,
    /// So many bytes follow a write as it says, at most so many as make sense here.
    right: bool,
}

fuzz_target!(|sent: Sent| {
    let mut bytes = Vec::new();
    match sent {
        Sent::Noise(noise) => bytes = noise,
        Sent::Options(fixed, options) => {
            bytes.extend([0, 0, 0, if fixed { 3 } else { 0 }]);
            options.iter().for_each(|(number, data)| option(&mut bytes, *number, data));
        }
        Sent::Requests { structured, requests, rest } => {
            bytes.extend([0, 0, 0, 3]);
            if structured {
                option(&mut bytes, 8, b"");
                option(&mut bytes, 10, b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation");
            }
            option(&mut bytes, 7, &[0; 6]);
            requests.iter().for_each(|asked| request(&mut bytes, asked));
            bytes.extend(rest);
        }
    }
    claystone_nbd::fuzzing::session(&bytes);
});

fn option(bytes: &mut Vec<u8>, number: u8, data: &[u8]) {
    bytes.extend(b"IHAVEOPT");
    bytes.extend(u32::from(number).to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
}

fn request(bytes: &mut Vec<u8>, asked: &Request) {
    let mut length = asked.bytes;
    if asked.right {
        length %= 20_000;
    }
    bytes.extend(0x2560_9513u32.to_be_bytes());
    bytes.extend([0, asked.flags, 0, asked.command]);
    bytes.extend(u64::from(asked.cookie).to_be_bytes());
    bytes.extend(u64::from(asked.offset % (1 << 21)).to_be_bytes());
    bytes.extend(length.to_be_bytes());
    if asked.right && asked.command == 1 {
        bytes.resize(bytes.len() + length as usize, asked.cookie);
    }
}
