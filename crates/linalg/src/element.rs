//! The plain number types of matrices, messages and files.

/// An [`Element`] type as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementType {
    U8,
    U32,
    U64,
    F32,
    F64,
}

impl ElementType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            ElementType::U8 => 1,
            ElementType::U32 | ElementType::F32 => 4,
            ElementType::U64 | ElementType::F64 => 8,
        }
    }
}

/// A number type that may be viewed as bytes.
pub trait Element: bytemuck::Pod + Default {
    /// This type as a value.
    const TYPE: ElementType;
}

impl Element for u8 {
    const TYPE: ElementType = ElementType::U8;
}

impl Element for u32 {
    const TYPE: ElementType = ElementType::U32;
}

impl Element for u64 {
    const TYPE: ElementType = ElementType::U64;
}

impl Element for f32 {
    const TYPE: ElementType = ElementType::F32;
}

impl Element for f64 {
    const TYPE: ElementType = ElementType::F64;
}
