//! The handshake: greetings, options, and the replies to them.

use bytes::{BufMut, BytesMut};

use super::{ALLOCATION_ID, PAYLOAD_BYTES_MAX, Reader};

pub(crate) const GREETING_BYTES: usize = 18;
pub(crate) const CLIENT_FLAGS_BYTES: usize = 4;
pub(crate) const OPTION_HEAD_BYTES: usize = 16;

/// What the server says first: fixed newstyle, and no zeros after an export's name.
pub(crate) fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    greeting[..8].copy_from_slice(b"NBDMAGIC");
    greeting[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    greeting[16..].copy_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    greeting
}

/// What the client answers to the greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientFlags {
    /// It knows of options beside the export's name.
    pub(crate) fixed_newstyle: bool,
    /// It wants no zeros after the reply to an export's name.
    pub(crate) no_zeroes: bool,
}

impl ClientFlags {
    /// None: it sets a flag that nobody offered.
    pub(crate) fn parse(bytes: [u8; CLIENT_FLAGS_BYTES]) -> Option<ClientFlags> {
        let flags = u32::from_be_bytes(bytes);
        let has = |flag: u16| flags & u32::from(flag) != 0;
        let known = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        (flags & !known == 0)
            .then(|| ClientFlags { fixed_newstyle: has(FLAG_FIXED_NEWSTYLE), no_zeroes: has(FLAG_NO_ZEROES) })
    }
}

/// Which option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionKind {
    ExportName,
    Abort,
    List,
    StartTls,
    Info,
    Go,
    StructuredReply,
    ListMetaContext,
    SetMetaContext,
    Other,
}

/// What precedes an option's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OptionHead {
    /// The number that replies repeat.
    pub(crate) number: u32,
    /// Bytes of data that follow.
    pub(crate) data_bytes: u32,
}

impl OptionHead {
    /// None: it does not begin as an option does.
    pub(crate) fn parse(bytes: [u8; OPTION_HEAD_BYTES]) -> Option<OptionHead> {
        let mut reader = Reader(&bytes);
        let magic = u64::from_be_bytes(reader.array()?);
        let head = OptionHead { number: reader.u32()?, data_bytes: reader.u32()? };
        (magic == OPTION_MAGIC).then_some(head)
    }

    pub(crate) fn kind(self) -> OptionKind {
        match self.number {
            1 => OptionKind::ExportName,
            2 => OptionKind::Abort,
            3 => OptionKind::List,
            5 => OptionKind::StartTls,
            6 => OptionKind::Info,
            7 => OptionKind::Go,
            8 => OptionKind::StructuredReply,
            9 => OptionKind::ListMetaContext,
            10 => OptionKind::SetMetaContext,
            _ => OptionKind::Other,
        }
    }
}

/// A name of an export: UTF-8 of at most 4096 bytes.
pub(crate) fn export_name(bytes: &[u8]) -> Result<&str, OptionRefusal> {
    if bytes.len() > NAME_BYTES_MAX {
        return Err(OptionRefusal::TooBig);
    }
    std::str::from_utf8(bytes).map_err(|_| OptionRefusal::Invalid)
}

/// What is told of an export beside its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InfoKind {
    Name,
    Description,
    PageBytes,
}

/// The data of `INFO` and `GO`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked<'a> {
    pub(crate) name: &'a str,
    /// Each once; what is not known is left out.
    pub(crate) infos: Vec<InfoKind>,
}

impl<'a> Asked<'a> {
    /// # Errors
    /// `Invalid`, `TooBig`.
    pub(crate) fn parse(data: &'a [u8]) -> Result<Asked<'a>, OptionRefusal> {
        let mut reader = Reader(data);
        let name = export_name(reader.text().ok_or(OptionRefusal::Invalid)?)?;
        let count = reader.u16().ok_or(OptionRefusal::Invalid)?;
        if reader.0.len() != usize::from(count) * 2 {
            return Err(OptionRefusal::Invalid);
        }
        let mut infos = Vec::new();
        while let Some(number) = reader.u16() {
            let info = match number {
                INFO_NAME => InfoKind::Name,
                INFO_DESCRIPTION => InfoKind::Description,
                INFO_BLOCK_SIZE => InfoKind::PageBytes,
                _ => continue,
            };
            if !infos.contains(&info) {
                infos.push(info);
            }
        }
        Ok(Asked { name, infos })
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`, as far as it concerns what there is: `base:allocation`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetaQuery<'a> {
    pub(crate) name: &'a str,
    /// There are no queries at all.
    pub(crate) empty: bool,
    /// One of them is `base:allocation`.
    pub(crate) allocation: bool,
    /// One of them is `base:`, which stands for all there is, in a list.
    pub(crate) base: bool,
}

impl<'a> MetaQuery<'a> {
    /// # Errors
    /// `Invalid`, `TooBig`.
    pub(crate) fn parse(data: &'a [u8]) -> Result<MetaQuery<'a>, OptionRefusal> {
        let mut reader = Reader(data);
        let name = export_name(reader.text().ok_or(OptionRefusal::Invalid)?)?;
        let count = reader.u32().ok_or(OptionRefusal::Invalid)?;
        let mut query = MetaQuery { name, empty: count == 0, allocation: false, base: false };
        for _ in 0..count {
            let text = reader.text().ok_or(OptionRefusal::Invalid)?;
            query.allocation |= text == ALLOCATION.as_bytes();
            query.base |= text == b"base:";
        }
        if reader.0.is_empty() { Ok(query) } else { Err(OptionRefusal::Invalid) }
    }
}

/// Why an option is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OptionRefusal {
    /// We do not know it.
    Unsupported,
    /// We know it and do not want it.
    Policy,
    /// It is malformed, or out of place.
    Invalid,
    /// Nothing goes on without TLS.
    TlsRequired,
    /// There is no such export.
    Unknown,
    /// There is one, and it cannot be used now.
    Refused { reason: String },
    /// It is longer than we take.
    TooBig,
}

impl OptionRefusal {
    fn number(&self) -> u32 {
        const ERROR: u32 = 1 << 31;
        match self {
            OptionRefusal::Unsupported => ERROR + 1,
            // Clients take "unknown" for a wrong name, and "shutdown" for a server that is about to end.
            OptionRefusal::Policy | OptionRefusal::Refused { .. } => ERROR + 2,
            OptionRefusal::Invalid => ERROR + 3,
            OptionRefusal::TlsRequired => ERROR + 5,
            OptionRefusal::Unknown => ERROR + 6,
            OptionRefusal::TooBig => ERROR + 9,
        }
    }

    fn message(&self) -> &str {
        match self {
            OptionRefusal::Unsupported => "this server does not know the option",
            OptionRefusal::Policy => "this server does not offer it",
            OptionRefusal::Invalid => "the option is malformed or out of place",
            OptionRefusal::TlsRequired => "this server wants TLS first",
            OptionRefusal::Unknown => "there is no such export",
            OptionRefusal::Refused { reason } => cut(reason),
            OptionRefusal::TooBig => "the option is too long",
        }
    }
}

/// What a client is told of an export before it uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExportFacts {
    pub(crate) bytes: u64,
    pub(crate) page_bytes: u32,
    pub(crate) read_only: bool,
}

/// What an export can do. All of it holds for every device; reads in one part only with structured replies. That zeros can be
/// asked for only if they are fast says that a refusal is fast, for devices too that refuse all of them.
fn transmission_flags(facts: ExportFacts, structured: bool) -> u16 {
    let mut flags = FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN;
    if facts.read_only {
        flags |= FLAG_READ_ONLY;
    } else {
        flags |= FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES | FLAG_SEND_FAST_ZERO;
    }
    if structured { flags | FLAG_SEND_DF } else { flags }
}

/// The replies to one option.
#[derive(Debug)]
pub(crate) struct OptionReplies {
    option: u32,
    pub(crate) bytes: BytesMut,
}

impl OptionReplies {
    pub(crate) fn to(option: OptionHead) -> OptionReplies {
        OptionReplies { option: option.number, bytes: BytesMut::new() }
    }

    fn push(&mut self, kind: u32, parts: &[&[u8]]) {
        let data_bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes.put_u64(OPTION_REPLY_MAGIC);
        self.bytes.put_u32(self.option);
        self.bytes.put_u32(kind);
        self.bytes.put_u32(u32::try_from(data_bytes).expect("names have at most 4096 bytes"));
        parts.iter().for_each(|part| self.bytes.put_slice(part));
    }

    pub(crate) fn ack(mut self) -> BytesMut {
        self.push(REP_ACK, &[]);
        self.bytes
    }

    pub(crate) fn refuse(mut self, why: &OptionRefusal) -> BytesMut {
        self.push(why.number(), &[why.message().as_bytes()]);
        self.bytes
    }

    /// One of the exports there are. Names beyond what the protocol takes are left out: nobody could ask for them.
    pub(crate) fn server(&mut self, name: &str, description: &str) {
        if name.len() <= NAME_BYTES_MAX {
            let length = name.len() as u32;
            self.push(REP_SERVER, &[&length.to_be_bytes(), name.as_bytes(), cut(description).as_bytes()]);
        }
    }

    pub(crate) fn info_export(&mut self, facts: ExportFacts, structured: bool) {
        let flags = transmission_flags(facts, structured);
        self.push(REP_INFO, &[&INFO_EXPORT.to_be_bytes(), &facts.bytes.to_be_bytes(), &flags.to_be_bytes()]);
    }

    pub(crate) fn info_name(&mut self, name: &str) {
        self.push(REP_INFO, &[&INFO_NAME.to_be_bytes(), cut(name).as_bytes()]);
    }

    pub(crate) fn info_description(&mut self, description: &str) {
        self.push(REP_INFO, &[&INFO_DESCRIPTION.to_be_bytes(), cut(description).as_bytes()]);
    }

    /// Any byte can be read and written alone, pages are what is fast.
    pub(crate) fn info_page_bytes(&mut self, facts: ExportFacts) {
        let least = 1u32;
        self.push(
            REP_INFO,
            &[
                &INFO_BLOCK_SIZE.to_be_bytes(),
                &least.to_be_bytes(),
                &facts.page_bytes.to_be_bytes(),
                &PAYLOAD_BYTES_MAX.to_be_bytes(),
            ],
        );
    }

    /// `base:allocation`; in a list its number means nothing and is 0.
    pub(crate) fn allocation_context(&mut self, selected: bool) {
        let id = if selected { ALLOCATION_ID } else { 0 };
        self.push(REP_META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION.as_bytes()]);
    }

    /// The reply to an export's name, which has no head; `padded` with zeros for old clients.
    pub(crate) fn export_name(facts: ExportFacts, structured: bool, padded: bool) -> BytesMut {
        let mut bytes = BytesMut::new();
        bytes.put_u64(facts.bytes);
        bytes.put_u16(transmission_flags(facts, structured));
        bytes.put_bytes(0, if padded { 124 } else { 0 });
        bytes
    }
}

/// As much of a text as the protocol takes.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME_BYTES_MAX)]
}

const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const ALLOCATION: &str = "base:allocation";
/// The protocol's limit for any text.
const NAME_BYTES_MAX: usize = 4096;

const FLAG_FIXED_NEWSTYLE: u16 = 1;
const FLAG_NO_ZEROES: u16 = 1 << 1;

const FLAG_HAS_FLAGS: u16 = 1;
const FLAG_READ_ONLY: u16 = 1 << 1;
const FLAG_SEND_FLUSH: u16 = 1 << 2;
const FLAG_SEND_FUA: u16 = 1 << 3;
const FLAG_SEND_TRIM: u16 = 1 << 5;
const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
const FLAG_SEND_DF: u16 = 1 << 7;
const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
const FLAG_SEND_FAST_ZERO: u16 = 1 << 11;

const REP_ACK: u32 = 1;
const REP_SERVER: u32 = 2;
const REP_INFO: u32 = 3;
const REP_META_CONTEXT: u32 = 4;

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_DESCRIPTION: u16 = 2;
const INFO_BLOCK_SIZE: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: ExportFacts = ExportFacts { bytes: 0x0102_0304, page_bytes: 4096, read_only: false };

    #[test]
    fn greetings_are_as_the_protocol_writes_them() {
        assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\x00\x03");
        let both = ClientFlags { fixed_newstyle: true, no_zeroes: true };
        assert_eq!(ClientFlags::parse([0, 0, 0, 3]), Some(both));
        let none = ClientFlags { fixed_newstyle: false, no_zeroes: false };
        assert_eq!(ClientFlags::parse([0, 0, 0, 0]), Some(none));
        for flags in [[0, 0, 0, 4], [0x80, 0, 0, 1], [0, 1, 0, 3]] {
            assert_eq!(ClientFlags::parse(flags), None, "{flags:?}");
        }
    }

    #[test]
    fn options_have_a_head() {
        let head = *b"IHAVEOPT\0\0\0\x07\0\0\x01\x02";
        let parsed = OptionHead::parse(head).expect("an option");
        assert_eq!((parsed.kind(), parsed.data_bytes), (OptionKind::Go, 0x102));
        for place in 0..8 {
            let mut wrong = head;
            wrong[place] ^= 1;
            assert_eq!(OptionHead::parse(wrong), None, "magic changed at {place}");
        }
        for number in [0, 4, 11, 12, u32::MAX] {
            assert_eq!(OptionHead { number, data_bytes: 0 }.kind(), OptionKind::Other);
        }
    }

    #[test]
    fn go_names_an_export_and_what_to_tell() {
        let data = b"\0\0\0\x03vol\0\x05\0\x03\0\x63\0\x01\0\x03\0\0";
        let asked = Asked { name: "vol", infos: vec![InfoKind::PageBytes, InfoKind::Name] };
        assert_eq!(Asked::parse(data), Ok(asked));
        assert_eq!(Asked::parse(b"\0\0\0\0\0\0"), Ok(Asked { name: "", infos: vec![] }));
        for end in 0..data.len() {
            assert_eq!(Asked::parse(&data[..end]), Err(OptionRefusal::Invalid), "cut at {end}");
        }
        assert_eq!(Asked::parse(&[&data[..], b"\0"].concat()), Err(OptionRefusal::Invalid));
        assert_eq!(Asked::parse(b"\xff\xff\xff\xffvol\0\0"), Err(OptionRefusal::Invalid));
        assert_eq!(Asked::parse(b"\0\0\0\x01\xff\0\0"), Err(OptionRefusal::Invalid), "no UTF-8");
        let long = [&4097u32.to_be_bytes()[..], &[b'x'; 4097], b"\0\0"].concat();
        assert_eq!(Asked::parse(&long), Err(OptionRefusal::TooBig));
    }

    #[test]
    fn queries_of_contexts_are_taken_apart() {
        let data = b"\0\0\0\x01v\0\0\0\x02\0\0\0\x0fbase:allocation\0\0\0\x06qemu:x";
        let query = MetaQuery { name: "v", empty: false, allocation: true, base: false };
        assert_eq!(MetaQuery::parse(data), Ok(query));
        for end in 0..data.len() {
            assert_eq!(MetaQuery::parse(&data[..end]), Err(OptionRefusal::Invalid), "cut at {end}");
        }
        assert_eq!(MetaQuery::parse(&[&data[..], b"x"].concat()), Err(OptionRefusal::Invalid));
        let all = MetaQuery { name: "", empty: true, allocation: false, base: false };
        assert_eq!(MetaQuery::parse(&[0; 8]), Ok(all));
        let base = MetaQuery { name: "", empty: false, allocation: false, base: true };
        assert_eq!(MetaQuery::parse(b"\0\0\0\0\0\0\0\x01\0\0\0\x05base:"), Ok(base));
        assert_eq!(
            MetaQuery::parse(b"\0\0\0\0\xff\xff\xff\xff"),
            Err(OptionRefusal::Invalid),
            "more than there are bytes"
        );
    }

    #[test]
    fn replies_are_as_the_protocol_writes_them() {
        let option = OptionHead { number: 7, data_bytes: 0 };
        let mut replies = OptionReplies::to(option);
        replies.info_export(FACTS, true);
        replies.info_page_bytes(FACTS);
        let head =
            |kind: &[u8], length: u8| [b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07", kind, &[0, 0, 0, length]].concat();
        let expected = [
            head(b"\0\0\0\x03", 12),
            b"\0\0\0\0\0\0\x01\x02\x03\x04\x09\xed".to_vec(),
            head(b"\0\0\0\x03", 14),
            b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0".to_vec(),
            head(b"\0\0\0\x01", 0),
        ];
        assert_eq!(replies.ack(), expected.concat());

        let mut replies = OptionReplies::to(option);
        replies.server("vol", "a");
        replies.allocation_context(true);
        let expected = [
            head(b"\0\0\0\x02", 8),
            b"\0\0\0\x03vola".to_vec(),
            head(b"\0\0\0\x04", 19),
            b"\0\0\0\x01base:allocation".to_vec(),
        ];
        assert_eq!(replies.bytes, expected.concat());

        let refused = OptionReplies::to(option).refuse(&OptionRefusal::Unknown);
        assert_eq!(refused, [head(b"\x80\0\0\x06", 23), b"there is no such export".to_vec()].concat());
        let refused = OptionReplies::to(option).refuse(&OptionRefusal::Refused { reason: "not now".to_owned() });
        assert_eq!(refused, [head(b"\x80\0\0\x02", 7), b"not now".to_vec()].concat());
    }

    #[test]
    fn old_clients_get_zeros_after_the_size() {
        let bare = OptionReplies::export_name(FACTS, false, false);
        assert_eq!(bare, &b"\0\0\0\0\x01\x02\x03\x04\x09\x6d"[..]);
        let padded = OptionReplies::export_name(FACTS, false, true);
        assert_eq!((padded.len(), &padded[..10]), (134, &bare[..]));
    }

    #[test]
    fn who_only_reads_is_told_so() {
        let flags = transmission_flags(ExportFacts { read_only: true, ..FACTS }, false);
        assert_eq!(flags, FLAG_HAS_FLAGS | FLAG_READ_ONLY | FLAG_SEND_FLUSH | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN);
    }
}
